"""A page in the browser that shows what a running planner node sees, plans and says.

It only reads: nothing here can send a goal or move the arm. `records` is what is known,
`hearing` how each message changes it, `snapshot` what the page is told of it; these are pure.
`listener` subscribes, `server` serves.
"""
