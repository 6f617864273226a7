from laurel.data.quality import figures, label_in_words, metrics

SHARE = {"value": 0.25, "ci95": [0.125, 0.4], "of": 8}


def test_metrics_are_flat_numbers() -> None:
    quality = {
        "answers": 8,
        "parse_rate": SHARE,
        "gates": {"parse_rate": {"gate": "min_parse_rate", "low": 0.9, "high": 1.0, "passed": True}},
        "oracle": {"agreement": SHARE, "pairs": 9, "calibration": [{"p": 1.0}]},
        "by": [{"annotator": "a", "parse_rate": SHARE}],
    }
    assert metrics(quality) == {
        "answers": 8.0,
        "parse_rate": 0.25, "parse_rate_low": 0.125, "parse_rate_high": 0.4,
        "oracle.agreement": 0.25, "oracle.agreement_low": 0.125, "oracle.agreement_high": 0.4,
        "oracle.pairs": 9.0,
    }  # fmt: skip


def test_figures_are_those_that_apply() -> None:
    assert figures({}) == []
    assert figures({"oracle": {"pairs": 3}}) == [], "nothing was decided"
    (parsed,) = figures({"parse_rate": SHARE, "answers": 8})
    assert (parsed.shown, parsed.shown_interval, parsed.of, parsed.unit) == ("25.0%", "12.5% to 40.0%", 8, "answers")
    gate = {"gate": "max_position_bias", "low": 0.1, "high": 0.9, "passed": False}
    (bias,) = figures({"position_bias": SHARE, "gates": {"position_bias": gate}})
    assert (bias.remark, bias.gate) == ("unbiased 50%", "gate: 10% to 90%, not passed")
    agreement, brier, error = figures({"gold": {"agreement": SHARE, "brier": 0.125, "calibration_error": 0.0625}})
    assert agreement.measure == "agreement with a person"
    assert (brier.shown, error.shown) == ("0.125", "0.062")


def test_labels_in_words() -> None:
    assert label_in_words("ok", 1.0) == "1 is better"
    assert label_in_words("ok", 0.25) == "2 is better, 75% sure"
    assert label_in_words("tie", 0.5) == "neither is better"
    assert label_in_words("parse_failed", None) == "its answers could not be read"
    assert label_in_words("incomplete", None) == "too few answers arrived or could be read"
    assert label_in_words("abstain", float("nan")) == "it declined to choose"
