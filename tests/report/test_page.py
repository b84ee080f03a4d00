"""The page shows everything as text, asks the network for nothing, and never hides what is missing."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from rightreasons import families
from rightreasons.case import Sheet, votes
from rightreasons.errors import DataError
from rightreasons.findings import (
    Bars,
    Check,
    Curves,
    Estimate,
    Finding,
    Gallery,
    Heatmap,
    Picture,
    Scatter,
    Table,
    Unevenness,
    not_run,
)  # fmt: skip
from rightreasons.report import page, report, wording
from rightreasons.report.glossary import glossary

EVIL = """<script>alert(1)</script><img src=x onerror=alert(1)>"'&{{ 7 * 7 }}</style></title></svg>--> مرحبا 🩻"""


class Parsed(HTMLParser):
    """Tags with their attributes, and the text outside of style and script."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.words, self.inside = [], [], ""
        self.feed(text)
        self.text = "".join(self.words)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("style", "script"):
            self.words.append(data)


def finding(name="a", verdict="shortcut", row="reliance", **fields):
    given = {
        "audit": "some_audit",
        "question": f"Question of {name}?",
        "sentence": f"Sentence of {name}.",
        "estimates": [Estimate(name="effect", value=0.312, low=0.297, high=0.326, p=0.0001, n=900, row=row)],
    }
    return Finding(name=name, verdict=verdict, row=row, **{**given, **fields})


def exhibits(text="plain"):
    picture = np.random.default_rng(0).random((16, 16, 3))
    kinds = {"title": text, "caption": text, "reason": text}
    return [
        Table(columns=[text, "b"], rows=[[text, 1.0], [None, text]], highlight=[0], **kinds),
        Bars(
            labels=[text, "two"],
            series={text: [1, 2], "other": [2, None]},
            reference=1.5,
            reference_label=text,
            value_label=text,
            **kinds,
        ),
        Curves(
            x=[text, "two"],
            series={text: [1, 2], "other": [2, 3]},
            x_label=text,
            y_label=text,
            hline=1,
            hline_label=text,
            **kinds,
        ),
        Curves(
            x=[1, 2, 3],
            series=[1, 2, 3],
            style="steps",
            vline=2,
            vline_label=text,
            bands=[{"low": 1, "high": 2, "label": text}],
            **kinds,
        ),
        Scatter(x=[1, 2], y=[1, 2], label=[text, text], group=[text, "other"], x_label=text, y_label=text, **kinds),
        Heatmap(
            values=[[1, 2], [3, None]],
            row_labels=[text, "b"],
            col_labels=[text, "b"],
            row_title=text,
            col_title=text,
            value_label=text,
            **kinds,
        ),
        Heatmap(values=np.ones((2, 2)), background=picture, **kinds),
        Gallery(
            items=[Picture(png=picture, caption=text, group=text, values={text: 1}), Picture(png=picture, group="other")],
            sort=text,
            **kinds,
        ),
    ]


def render(*findings, **settings):
    return page.render(findings, **{"title": "A title", **settings})


def test_report_writes_one_whole_file_and_returns_its_path(tmp_path):
    path = report([finding()], tmp_path / "deep" / "report.html", title="T", subtitle="S")
    assert path == tmp_path / "deep" / "report.html"
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "summary.json"]


def test_every_text_of_a_finding_is_shown_as_text_and_never_as_markup():
    evil = Finding(
        name=EVIL, audit=EVIL, question=EVIL, row="place", verdict="shortcut", sentence=EVIL, exhibits=exhibits(EVIL),
        estimates=[Estimate(name=EVIL, value=1, note=EVIL, unit=EVIL, group=EVIL, row="place"),
                   Estimate(name=EVIL, value=np.nan, reason=EVIL, row="place")],
        checks=[Check(name=EVIL, passed=False, note=EVIL)], settings={EVIL: EVIL}, model=EVIL, cohort=EVIL, attribute=EVIL,
        versions={EVIL: EVIL}, created=EVIL,
    )  # fmt: skip
    other = finding("b", "no evidence", model=EVIL + "2", attribute=EVIL)
    sheet = Sheet(
        tables=(Table(title=EVIL, caption=EVIL, columns=[EVIL], rows=[[EVIL]]),), facts={EVIL: EVIL}, command=EVIL, study=EVIL,
        imbalance=(Estimate(name=EVIL, value=0.5, row="behaviour"),),
    )  # fmt: skip
    shown = render(evil, not_run(EVIL, EVIL, EVIL, "remedy", EVIL), other, title=EVIL, subtitle=EVIL, sheet=sheet)
    parsed = Parsed(shown)
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1
    assert sum(tag == "style" for tag, _ in parsed.tags) == 1
    for tag, attributes in parsed.tags:
        assert not [key for key in attributes if key.startswith("on")], (tag, attributes)
        if tag == "img":
            assert attributes["src"].startswith("data:image/")
    assert "<script>alert(1)</script>" in parsed.text and "{{ 7 * 7 }}" in parsed.text and "مرحبا" in parsed.text


def test_the_page_asks_the_network_for_nothing():
    shown = render(finding(exhibits=exhibits()), not_run("n", "n", "n?", "place", "because"))
    assert "http:" not in shown and "https:" not in shown and "url(" not in shown and "@import" not in shown
    for tag, attributes in Parsed(shown).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "audio", "video")
        for key in ("src", "href", "srcset", "action", "data", "poster", "xlink:href"):
            assert attributes.get(key, "#").startswith(("#", "data:image/")), (tag, attributes)


def test_the_policy_allows_this_style_and_this_script_alone():
    shown = render(finding(exhibits=exhibits()))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', shown).group(1).replace("&#39;", "'")
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", shown, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [attributes for _, attributes in Parsed(shown).tags if "style" in attributes]  # the policy would drop them


def test_every_drawing_is_well_formed_and_says_what_it_shows():
    shown = render(finding(exhibits=exhibits(EVIL)))
    drawings = re.findall(r"<svg.*?</svg>", shown, re.DOTALL)
    # The estimate and its scale; every exhibit but the table and the gallery; on the first screen the score and a picture.
    assert len(drawings) == 2 + 6 + 2
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.get("role") == "img" and root.get("aria-label") and root.find("desc").text
        assert root.get("viewBox") and "nan" not in drawing and "inf" not in re.sub(r"undefined|info", "", drawing)


def test_findings_come_with_the_gravest_verdict_first():
    verdicts = [("d", None), ("e", "no evidence"), ("s", "shortcut"), ("i", "inconclusive")]
    shown = render(
        *(finding(name, verdict) for name, verdict in verdicts), not_run("n", "n", "Question of n?", "place", "no boxes")
    )
    order = re.findall(r"<bdi>Question of (\w)\?</bdi>", shown)
    assert order == ["s", "i", "e", "d", "n"]
    assert shown.index("It is undecided whether the model uses") < shown.index('<h2 id="findings-title">')


def test_what_did_not_run_is_one_line_with_reasons_on_demand_and_rows_without_audits_say_so():
    missing = [not_run(name, name, "Which tokens?", "place", f"the model of {name} has no tokens") for name in ("n", "m")]
    text = " ".join(Parsed(render(*missing)).text.split())
    assert "2 audits did not run: n, m" in text
    assert text.count("Not run: the model of n has no tokens") == 1
    assert text.count("not looked at") == 4
    assert "no audit of reliance could look" in text


def first_screen(shown):
    return Parsed(shown[: shown.index('id="findings"')])


def test_the_first_screen_has_verdict_five_rows_and_the_most_telling_picture():
    picture = np.zeros((8, 8))
    place = finding("p", "shortcut", row="place", exhibits=[Heatmap(title="Where", values=[[1, 2]], background=picture)])
    swap = finding("s", exhibits=[Bars(title="How often", labels=["x"], series=[1])])
    screen = first_screen(render(swap, place))
    assert "uses a cue that it should not use to decide: some_audit says so" in screen.text
    assert all(words.title in screen.text for words in wording.ROW_WORDS) and screen.text.count("not looked at") == 3
    assert "Where" in screen.text and "How often" not in screen.text
    assert "score 0.83" in screen.text and "not a probability" in screen.text


def test_every_model_and_attribute_is_a_case_of_its_own_with_a_switch():
    shown = render(finding("a", model="one", attribute="sex"), finding("b", "no evidence", model="two", attribute="sex"))
    tags = Parsed(shown).tags
    assert [a["href"] for t, a in tags if t == "a" and "case-switch" in a.get("class", "")] == ["#case-1", "#case-2"]
    assert [a["id"] for t, a in tags if t == "section" and a.get("class", "").startswith("case ")] == ["case-1", "case-2"]
    assert [a["data-key"] for t, a in tags if t == "select" and "data-key" in a] == ["model", "verdict"]
    for t, a in tags:
        if t == "li" and "chosen" in a.get("class", ""):
            assert a["data-model"] in ("one", "two") and a["data-verdict"] in ("shortcut", "no evidence")


def test_the_gravest_case_is_the_one_that_is_seen_first():
    shown = render(
        finding("a", "no evidence", model="one"), finding("b", model="two"), finding("c", "inconclusive", model="three")
    )
    names = [a["aria-label"] for t, a in Parsed(shown).tags if t == "section" and a.get("class", "").startswith("case ")]
    assert [name.split()[1] for name in names] == ["two", "three", "one"]


def test_disagreement_and_what_was_withdrawn_stand_on_the_first_screen():
    weak = finding("b", "no evidence", audit="other")
    assert "calls a shortcut" in first_screen(render(finding("a"), weak)).text
    several = [
        finding(name, attribute=name, estimates=[Estimate(name="e", value=1, p=p, row="reliance")])
        for name, p in (("sex", 0.001), ("age", 0.045), ("site", 0.9))
    ]
    text = first_screen(render(*several)).text
    assert "Withdrawn: age" in text and "All attributes at once" in text and "p, corrected" in text


def test_a_chip_says_how_a_finding_counts():
    closed = [Check(name="a gate is open", passed=False, decides=True)]
    shown = render(
        finding("a", audit="plain"),
        finding("b", "no evidence", audit="sure", standing="guard"),
        finding("c", "inconclusive", audit="blind", checks=closed),
    )
    chips = re.findall(r"<bdi>(\w+)</bdi> <span class=\"chip-word\">([^<]*)</span>", shown)
    assert dict(chips) == {"plain": "shortcut, overruled", "sure": "no evidence", "blind": "could not look"}


def test_several_attributes_stand_in_one_table_with_one_drawing():
    def told(name, other, verdict, use, within, present):
        numbers = [
            Estimate(name=key, id=key, value=v, low=v - 0.01, high=v + 0.01, row="reliance", unit="probability")
            for key, v in (("use", use), ("use within", within), ("following", use), ("following within", within))
        ]
        companion = Unevenness(kind="companion", companion=other, present=present, estimate=numbers[1])
        kept = () if present is False and verdict == "no evidence" else (companion,)
        return finding(f"g-{name}", verdict, attribute=name, audit="g", standing="guard", estimates=numbers, unevenness=kept)

    shown = render(
        told("ward", "scanner", "no evidence", 0.2, 0.01, True),
        told("scanner", "ward", "shortcut", 0.3, 0.29, False),
        told("sex", "age", "inconclusive", 0.1, 0.05, None),
        told("age", "sex", "no evidence", 0.0, 0.0, False),
    )
    text = Parsed(shown).text
    section = text.split("All attributes at once", 1)[1].split("Which unevenness is it?", 1)[0]
    for words in ("explained by scanner", "both used: scanner and ward", "cannot be told from age", "no evidence of use"):
        assert words in section, words
    assert "0.290 [0.280, 0.300]" in section and "use within the others" in section
    assert shown.count('aria-labelledby="together-title-') == 1
    unevenness = text.split("Which unevenness is it?", 1)[1].split("All findings", 1)[0]
    assert "explains it" in unevenness and "cannot be told apart" in unevenness and "both used" in unevenness
    assert "rightreasons mitigate auto data.csv --attribute scanner --model MODEL" in unevenness
    alone = Parsed(render(told("ward", "scanner", "no evidence", 0.2, 0.01, True))).text
    assert "All attributes at once" not in alone and "Which unevenness is it?" in alone


def test_the_sheet_gives_group_sizes_and_how_to_do_it_again():
    sheet = Sheet(
        tables=(Table(title="y by sex", columns=["rows", "f", "m"], rows=[["train", 10, 90]]),),
        facts={"rows of test": "abc123"},
        command="rightreasons audit study.toml",
        study='[data]\nmanifest = "data.csv"\n',
        imbalance=(Estimate(name="sex", value=0.62, row="behaviour"),),
    )
    text = Parsed(render(finding(attribute="sex"), sheet=sheet)).text
    for word in (
        "y by sex",
        "abc123",
        "rightreasons audit study.toml",
        'manifest = "data.csv"',
        "0.620",
        "Which unevenness",
        "Balance:",
    ):
        assert word in text, word
    assert "This page was given no table of group sizes" in Parsed(render(finding())).text


def test_a_study_of_ten_thousand_images_and_thirty_models_is_a_page_that_opens():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, 10_000))
    thumbs = [
        Picture(png=rng.integers(0, 256, (64, 64, 3)).astype(np.uint8), values={"v": k}, group=str(k % 3)) for k in range(20)
    ]
    wide = [
        Scatter(title="points", x=points[0], y=points[1]),
        Gallery(title="pictures", items=thumbs * 3, sort="v"),
        Curves(title="lines", x=np.arange(200), series={str(k): rng.normal(size=200) for k in range(5)}),
    ]
    shown = render(*(finding(f"f{k}", model=f"model {k}", attribute="tag", exhibits=wide, n_rows=10_000) for k in range(30)))
    assert len(shown) < 10e6
    parsed = Parsed(shown)
    assert parsed.text.count("2000 of 10\u202f000 points are drawn.") >= 30 and "12 of 60 pictures are drawn." in parsed.text
    assert sum("case-switch" in a.get("class", "") for t, a in parsed.tags if t == "a") == 30


def test_every_estimate_shows_its_interval_and_an_undefined_one_its_reason():
    estimates = [
        Estimate(name="first", value=0.5, low=0.4, high=0.6, p=0.0004, n=10, row="reliance"),
        Estimate(name="second", value=np.nan, reason="empty group", row="reliance"),
        Estimate(name="third", value=2.0, low=1.0, high=np.inf, row="reliance"),
        Estimate(name="fourth", value=2.0, row="behaviour"),
        Estimate(name="fifth", value=1e-9, low=-1e-9, high=1e-8, level=0.9, row="reliance"),
    ]
    text = Parsed(render(finding(estimates=estimates))).text
    assert "[0.400, 0.600]" in text and "< 0.001" in text
    assert "undefined empty group" in text
    assert "[1.000, ?]" in text and "high is infinite" in text
    assert "no interval given" in text and "1.00 × 10⁻⁹" in text and "90\u00a0%" in text.replace(" %", "\u00a0%")


def test_checks_show_all_three_states():
    checks = [
        Check(name="p", passed=True),
        Check(name="f", passed=False, decides=True),
        Check(name="u", passed=None, note="rows unknown"),
    ]
    text = Parsed(render(finding(checks=checks))).text
    assert all(word in text for word in ("✓", "✕", "?", "passed", "failed", "not judged", "decides the verdict", "rows unknown"))


def test_settings_versions_and_seed_are_on_the_page():
    text = Parsed(
        render(finding(settings={"resamples": 10000, "aligned": {"red": 1}}, seed=17, seconds=75.0, n_rows=12345, n_subjects=7))
    ).text
    assert all(
        word in text for word in ("resamples", "10000", '{"red": 1}', "17", "75.0 s", "12\u202f345", "numpy", "some_audit")
    )


def test_the_glossary_explains_what_is_shown_and_nothing_else():
    names = {term.name for term in glossary(["balanced accuracy", "ECE"])}
    assert {"Accuracy", "Calibration error (ECE)", "p", "Interval [low, high]"} <= names
    assert not names & {"Brier score", "F1", "AUC"}


def case_term(shown):
    return Parsed(shown).text.split("The case and its score", 1)[1].split("Interval [low, high]", 1)[0]


def test_the_glossary_tells_the_rule_of_the_case():
    said = case_term(render(finding()))
    assert "Audits of behaviour and reliance vote with weight 1, audits of place vote with weight 1/4" in said
    assert "audits of encoding and remedy have no vote" in said and "A shortcut needs a call by an audit of reliance" in said
    assert "Findings about encoding and remedy do not change it" in said


@pytest.mark.parametrize(
    "constant, value, sentence",
    [
        ("WEIGHT", {"reliance": 1.0, "place": 0.5}, "audits of place vote with weight 1/2"),
        ("WEIGHT", {"reliance": 1.0, "place": 0.5}, "audits of behaviour, encoding and remedy have no vote"),
        ("CALLS", "place", "a call by an audit of place,"),
        ("ASKS_WHY", "place", "A call by an audit of place says that answers follow"),
        ("PRIOR", 1.0, "(1 + for) / (2 + for + against)"),
        ("COUNTS_ONCE", 0.3, "divided by 0.3"),
    ],
)
def test_the_page_says_the_rule_from_its_constants(monkeypatch, constant, value, sentence):
    assert sentence not in case_term(render(finding()))
    monkeypatch.setattr(votes, constant, value)
    assert sentence in case_term(render(finding()))


def test_a_page_of_no_findings_says_so():
    assert "There are no findings." in render()


def test_what_is_no_finding_is_refused():
    with pytest.raises(DataError, match=r"result\.finding"):
        render({"name": "a"})


def test_the_page_names_no_audit():
    audits = set(families.members("audits")) - {"groups", "probes", "focus"}
    source = "\n".join(
        path.read_text() for path in Path(page.__file__).parent.iterdir() if path.suffix in (".py", ".html", ".js", ".css")
    )
    for audit in audits:
        assert not re.search(rf"\b{audit}\b", source, re.IGNORECASE), audit


def test_a_page_of_thirty_full_galleries_stays_small_enough_to_open():
    rng = np.random.default_rng(0)
    noise = [Picture(png=rng.integers(0, 256, (128, 128, 3)).astype(np.uint8), values={"v": k}) for k in range(4)]
    shown = render(*(finding(str(k), exhibits=[Gallery(title="g", items=noise * 15)]) for k in range(30)))
    assert len(shown) < 40e6  # pictures of pure noise, the worst there is
    assert Parsed(shown).text.count("12 of 60 pictures are drawn.") == 30
