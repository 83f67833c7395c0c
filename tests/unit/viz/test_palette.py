"""Colours that everyone can tell apart."""

import numpy as np

from kd_cv.viz.palette import diverging_colors, heat_levels


def test_colours_are_neutral_in_the_middle_and_told_apart_without_red_and_green():
    colors = diverging_colors()
    assert colors.shape == (256, 3)
    assert colors.min() >= 0
    assert colors.max() <= 1
    assert np.ptp(colors[127:129]) < 0.02
    luminance = colors @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance[:128]) > -1e-3).all()
    assert (np.diff(luminance[128:]) < 1e-3).all()
    # at equal strength, the two sides differ in blue, which all common colour blindness leaves
    strength = np.arange(20, 110)
    assert (colors[127 - strength, 2] - colors[128 + strength, 2] > 0.1).all()


def test_a_heat_map_is_white_at_zero_and_vermilion_where_it_speaks_for_the_match():
    levels = heat_levels(np.array([[0.0, 0.5], [-0.5, 2.0]]))
    colors = 255 * diverging_colors()[levels]
    assert colors.shape == (2, 2, 3)
    assert colors[0, 0].min() > 240
    np.testing.assert_allclose(colors[0, 1], (213, 94, 0), atol=6)
    np.testing.assert_allclose(colors[1, 0], (0, 114, 178), atol=6)
    np.testing.assert_array_equal(colors[1, 1], 255 * diverging_colors()[255])
