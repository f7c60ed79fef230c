"""The command line, verb by verb: each file here is one verb, found by looking in this folder.

A verb's file has `Command`, a frozen dataclass of what it takes (its docstring is its help), and
`handle(command) -> exit code`. Only this package prints. What is heavy is imported where it is used: every
verb's file is loaded to show the help. What verbs share lies in `shared/`.
"""
