"""Colours stay apart for colour-blind eyes, and values in order go from light to dark."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.colors import rgb_to_hsv, to_rgb
from numpy.typing import ArrayLike, NDArray

from staleharness.algorithm import ALGORITHMS
from staleharness.figures.palette import (
    ALGORITHM_COLOURS,
    DASHES,
    SPARE_COLOURS,
    method_looks,
    sequential_styles,
    styles,
    text_colour,
)

EYES = {  # of linear RGB; Machado, Oliveira and Fernandes (2009), severity 1
    "normal": np.eye(3),
    "green-blind": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "red-blind": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
LEAST = 15.0  # ΔE of 1976; about 2 can just be seen side by side, a legend needs several times that


def linear(c: ArrayLike) -> NDArray[np.float64]:
    c = np.asarray(c)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def luminance(c: ArrayLike) -> float:
    return float(linear(c) @ XYZ[1])


def lab(c: ArrayLike, eye: str = "normal") -> NDArray[np.float64]:
    xyz = XYZ @ (EYES[eye] @ linear(c)).clip(0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eye", EYES)
def test_any_two_colours_are_told_apart(eye: str) -> None:
    colours = [colour for colour, _ in (*ALGORITHM_COLOURS.values(), *SPARE_COLOURS)]
    apart = {
        (a, b): np.linalg.norm(lab(to_rgb(a), eye) - lab(to_rgb(b), eye)) for a, b in itertools.combinations(colours, 2)
    }
    assert min(apart.values()) > LEAST, min(apart, key=lambda pair: apart[pair])


def test_ordered_values_stand_out_from_the_page_and_from_each_other() -> None:
    ordered = [to_rgb(s.colour) for s in sequential_styles({f"v[x={i}]": i for i in range(5)}).values()]
    assert contrast(np.ones(3), np.array(ordered[0])) > 2
    assert np.diff([lab(colour)[0] for colour in ordered]).max() < -10  # from light to dark


def contrast(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """WCAG 2."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [colour for colour, _ in (*ALGORITHM_COLOURS.values(), *SPARE_COLOURS)])
def test_names_have_the_contrast_of_text_and_the_hue_of_their_curve(colour: str) -> None:
    name = text_colour(colour)
    assert contrast(to_rgb(name), (1, 1, 1)) >= 4.5
    if contrast(to_rgb(colour), (1, 1, 1)) >= 4.5:
        assert name == colour
    else:
        assert rgb_to_hsv(to_rgb(name))[:2] == pytest.approx(rgb_to_hsv(to_rgb(colour))[:2], abs=0.03)


def test_the_simulation_finds_a_pair_that_is_too_similar() -> None:
    """Colours of token MIS and token TIS in earlier figures."""
    assert np.linalg.norm(lab(to_rgb("#44AA99"), "green-blind") - lab(to_rgb("#7F7F7F"), "green-blind")) < LEAST


def test_a_study_of_many_methods_uses_every_colour_before_it_dashes() -> None:
    looks = styles([f"method{i}" for i in range(len(SPARE_COLOURS) + len(ALGORITHM_COLOURS))])
    assert len({look.colour for look in looks.values()}) == len(looks)
    assert {look.dashes for look in looks.values()} == {DASHES[0]}
    assert "#D55E00" not in {s.colour for name, s in styles(["vaco", *looks]).items() if name in list(looks)[:13]}


def test_a_method_looks_the_same_in_every_company() -> None:
    looks = method_looks()
    everyone = styles(looks)
    for name, look in looks.items():
        for company in ([name], [name, "vaco", "ppo_clip"], [name, "mine", "vaco[delta=0.1]", "vaco"]):
            found = styles(company)[name]
            assert (found.colour, found.marker, found.dashes) == look
            assert (everyone[name].colour, everyone[name].marker, everyone[name].dashes) == look


def test_every_method_has_a_look_of_its_own() -> None:
    assert set(ALGORITHMS) <= set(method_looks())


def test_methods_of_one_colour_differ_in_dash_and_marker() -> None:
    looks = list(method_looks().values())
    for (colour, marker, dashes), other in itertools.combinations(looks, 2):
        assert colour != other[0] or (marker != other[1] and dashes != other[2])


def test_no_look_repeats_among_fifty_methods() -> None:
    """Known methods, variants and unknown ones together."""
    names = [*method_looks(), "vaco[delta=0.1]", "tis[cap=8]", *(f"method{i}" for i in range(13))]
    found = styles(names)
    assert len(names) > 50 and len({(s.colour, s.dashes) for s in found.values()}) == len(names)


def test_methods_of_a_published_study_have_colours_of_their_own() -> None:
    """Two studies around VCPO compare these in one panel."""
    for study in (
        ("deepseek_mask", "icepop", "mis_geo", "mis_seq", "tis", "vcpo", "ppo_clip"),
        ("cispo", "m2po", "otb", "seq_is", "tis", "vcpo", "ppo_clip"),
    ):
        assert len({look.colour for look in styles(study).values()}) == len(study)


def test_values_in_order_go_from_light_to_dark() -> None:
    values = {"vaco": 0.2, "vaco[delta=0.8]": 0.8, "vaco[delta=0.05]": 0.05, "vaco[delta=0.4]": 0.4, "x": 0.1}
    looks = sequential_styles(values)
    assert list(looks) == ["vaco[delta=0.05]", "x", "vaco", "vaco[delta=0.4]", "vaco[delta=0.8]"]
    for eye in EYES:
        lightness = [lab(to_rgb(look.colour), eye)[0] for look in looks.values()]
        assert np.diff(lightness).max() < -8.0
    assert len({look.marker for look in looks.values()}) == 5
