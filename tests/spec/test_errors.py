from __future__ import annotations

import pickle
import re

import pytest

from headway.spec import errors
from headway.spec.errors import DataError, HeadwayError, PlanError, RunError, SpecError, TraceError, joined, sentence

KINDS = [HeadwayError, SpecError, DataError, TraceError, PlanError, RunError]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"\w+Error", errors.__doc__ or "")
    real = [k.__name__ for k in vars(errors).values() if isinstance(k, type) and issubclass(k, HeadwayError)]
    assert drawn == real == [k.__name__ for k in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_errors_travel_between_processes(kind: type[HeadwayError]) -> None:
    error = kind("it broke", where="here", fix="Mend it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.what, again.where, again.fix, str(again)) == ("it broke", "here", "Mend it", "here: it broke. Mend it.")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RunError("it broke"), "it broke."),
        (RunError("it broke!", fix="Mend it."), "it broke! Mend it."),
        (RunError("is it whole?", where="a.json"), "a.json: is it whole?"),
    ],
)
def test_a_message_is_one_paragraph(error: HeadwayError, text: str) -> None:
    assert str(error) == text


def test_several_problems_are_numbered() -> None:
    assert joined(["one"]) == "one"
    assert joined(["one", "two"], "no") == "no, 2 problems:\n  1. one\n  2. two"
    assert sentence(" end ") == "end."
