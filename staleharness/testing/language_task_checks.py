"""The contract every language plugin keeps, in one call."""

from __future__ import annotations

from ..language.answer_grading import grade
from ..language.prompt_formatting import find_prompt
from ..language.spec import LanguageSpec
from ..language.task import LanguageTask
from ..task import Task
from .task_checks import is_listed_and_explained


def check_language_task(family: type[LanguageTask], env: str, data: str = "") -> None:
    """Listed and explained; the same problems each time, train and test apart, every question and answer of some
    length; and whoever writes the worked solution is paid by the format's own extractor or a strict one.
    """
    is_listed_and_explained(family, env)
    spec = LanguageSpec.from_dict({"env": env, "algorithm": "ppo_clip", "data": data})
    form = find_prompt(spec.prompt_format or family.prompt_format)
    extractors = {form.extractor, "strict"}
    train, test = (family().problems(spec, split) for split in ("train", "test"))
    repeat = family().problems(spec, "train")
    assert train == repeat, "the problems of a split are the same, in the same order, each time"
    for problem in (*train, *test):
        assert problem.question.strip() and problem.answer.strip(), problem
        verdicts = [grade(problem.solution, problem.answer, name) for name in extractors]
        assert any(v.correct for v in verdicts), f"its own solution earns nothing: {problem}"
    common = {p.question for p in train} & {p.question for p in test}
    assert not common, f"{len(common)} questions are in both splits, for one: {min(common)!r}"


def is_language(family: type[Task]) -> bool:
    """Return whether a family has prompts instead of environments."""
    return issubclass(family, LanguageTask)
