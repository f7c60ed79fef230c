"""Command line: each file here is one sub-command (a verb), found by listing this folder.

A verb's file has `Command`, a frozen dataclass of its arguments (its docstring is the help), and `handle(command) ->
exit code`. Only this package prints. Heavy modules are imported where they are used, because the help loads every
verb's file. Code that verbs share is in `shared/`.
"""
