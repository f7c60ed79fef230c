"""The command line, verb by verb: each file here is one verb, found by looking in this folder.

A verb's file has `Command`, a frozen dataclass of what it takes (its docstring is its help), and
`handle(command) -> exit code`. Only this package prints. Heavy modules are imported where they are used:
every verb's file is loaded to show the help. Code that verbs share is in `shared/`.
"""
