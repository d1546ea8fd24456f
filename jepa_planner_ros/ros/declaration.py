"""Parameters as they are declared on a node, and what is wrong with values given for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from jepa_planner_ros.spelling import as_given, did_you_mean, is_nearly


class ParameterError(ValueError):
    """A node cannot run with these parameters; the message says which and what is allowed."""


def declare(node: Node, name: str, default: Any, descriptor: ParameterDescriptor) -> Any:
    """Declare a parameter on a node, and return its value.

    Raises:
        ParameterError: the given value is of the wrong type or out of range.
    """
    try:
        value = node.declare_parameter(name, default, descriptor).value
    except InvalidParameterTypeException as error:
        raise _wrong_kind(node, name, default, descriptor) from error
    except InvalidParameterValueException as error:
        allowed = [*descriptor.integer_range, *descriptor.floating_point_range][0]
        raise ParameterError(
            f"Parameter {name} = {_given(node, name)} must lie between {allowed.from_value} and "
            f"{allowed.to_value}. {descriptor.description}"
        ) from error
    if value is None:
        # Of an empty list rclpy does not know what it is a list of.
        raise _wrong_kind(node, name, default, descriptor)
    return value


def unknown_parameters(
    node: Node, known: Collection[str], strict: Collection[str] = ()
) -> tuple[str, ...]:
    """A sentence on each value given to the node for a parameter that it does not have.

    They are no errors, since a file may hold parameters of several nodes under ``/**``, but in
    sections where a limit that is ignored leaves a wider one in force.

    Args:
        node: that was given the values.
        known: the parameters that it has.
        strict: those sections, such as ``limits`` in ``limits.step_rotation``.

    Raises:
        ParameterError: a value was given for a parameter that such a section does not have, or
            for one of a section whose name is nearly the same.
    """
    sentences = []
    for name in _overrides(node):
        if name in known or name == "use_sim_time" or name.startswith("qos_overrides."):
            continue
        meant = did_you_mean(name, known)
        if is_nearly(name.split(".")[0], strict):
            raise ParameterError(
                f"There is no parameter {name}, and none may be ignored of those that safety "
                f"depends on.{meant}"
            )
        sentences.append(f"There is no parameter {name}: its value is ignored.{meant}")
    return tuple(sentences)


def _overrides(node: Node) -> Mapping[str, Parameter]:
    # rclpy has no public name for what was given on the command line and in files.
    overrides: Mapping[str, Parameter] = node._parameter_overrides
    return overrides


def _wrong_kind(
    node: Node, name: str, default: Any, descriptor: ParameterDescriptor
) -> ParameterError:
    return ParameterError(
        f"Parameter {name} must be {_kind(default)}, not {_given(node, name)}. "
        f"{descriptor.description}"
    )


def _given(node: Node, name: str) -> str:
    return as_given(_overrides(node)[name].value)


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, float):
        return f"a number with a decimal point, such as {default}"
    if isinstance(default, int):
        return f"a whole number, such as {default}"
    if isinstance(default, list):
        return f"a list of numbers with decimal points, such as {default}"
    return f"a text, such as '{default}'"
