"""Bad inputs for every command: what is typed, what lies in the folder, and words that the one sentence must have.

Each case runs in an empty folder of its own. `{data}` in a command or a file stands for the folder that all cases share and
none may change; `{out}` for the folder that the case may write to.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Bad:
    """One bad input.

    Attributes
    ----------
    name : what is wrong
    command : as typed after `rightreasons`
    says : words of the one sentence
    files : what lies in the folder, by name; text may have {data}
    status : exit status; `check` ends with 1 where it lists what is wrong
    torch : whether the command runs a network
    """

    name: str
    command: str
    says: tuple[str, ...] = ()
    files: dict[str, str | bytes] = field(default_factory=dict)
    status: int = 2
    torch: bool = False


PREDICTED = "audit --predictions {data}/p.csv --label y --attribute sex --id id --out {out}"
NETWORK = (
    "--model rightreasons.models.small:small_cnn --num-classes 2 --size 16 --mean 0.5 --std 0.5 --checkpoint {data}/w.safetensors"
)
COLUMNS = "--label y --attribute sex --split split"
AUDIT = f"audit {{data}}/data.csv {NETWORK} {COLUMNS} --audits groups --out {{out}}"
STUDY = """
name = "bad"
[data]
manifest = "{data}/data.csv"
label = "y"
attribute = ["sex"]
split = "split"
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 16
[train]
epochs = 1
[[runs]]
architecture = "cnn"
[audits.groups]
"""
BROUGHT = """
name = "bad"
[data]
manifest = "{data}/data.csv"
label = "y"
attribute = ["sex"]
split = "split"
[model]
model = "{data}/model"
[audits.groups]
"""


def with_line(study: str, table: str, line: str) -> str:
    """A study.toml with one more line in a table; at the top where the table is empty. The key's own line is replaced."""
    key = line.partition("=")[0].strip()
    head = f"[{table}]" if not table.startswith("[") else table
    found, inside = [], table == ""
    lines = study.strip().splitlines()
    if table and head not in lines:
        return study + f"\n{head}\n{line}\n"
    if not table:
        found.append(line)
    for text in lines:
        if text.startswith("["):
            inside = text == head and table != ""
            found.append(text)
            if inside:
                found.append(line)
            continue
        if inside and text.partition("=")[0].strip() == key:
            continue
        found.append(text)
    return "\n".join(found) + "\n"


def without_table(study: str, table: str) -> str:
    kept, inside = [], False
    for text in study.strip().splitlines():
        if text.startswith("["):
            inside = text in (f"[{table}]", f"[[{table}]]") or text.startswith(f"[{table}.")
        if not inside:
            kept.append(text)
    return "\n".join(kept) + "\n"


P = "id,y,sex,p\n" + "".join(f"r{i},{i % 2},{'fm'[i // 2 % 2]},0.{i % 8 + 1}\n" for i in range(24))


def cells(**columns: Any) -> str:
    """A CSV from columns, cells as they are given."""
    names = list(columns)
    rows = zip(*columns.values())
    return ",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def predictions() -> Iterator[Bad]:
    """Tables of predictions: no network is needed."""
    table = "audit --predictions t.csv --label y --attribute sex --id id --out {out}"
    n = 24
    ids, y = [f"r{i}" for i in range(n)], [i % 2 for i in range(n)]
    sex, p = ["f", "m"] * (n // 2), [0.1 + 0.03 * i for i in range(n)]
    q = [1 - v for v in p]
    words = ["ill" if v else "well" for v in y]

    def of(name: str, content: str | bytes, *says: str, command: str = table) -> Bad:
        return Bad(name, command, says, {"t.csv": content})

    yield of("an empty table", "", "empty")
    yield of("a table with a header alone", "id,y,sex,p\n", "no rows")
    yield of("a table of zeros", bytes(300), "t.csv")
    yield of("a table in UTF-16", P.encode("utf-16"), "UTF-8")
    yield of("a table in UTF-16 without a mark", P.encode("utf-16-le"), "UTF-8")
    yield of("a table in Latin-1", P.replace("sex", "größe").encode("latin-1"), "UTF-8", command=table.replace("sex", "größe"))
    yield of("a PNG as a table", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "t.csv")
    yield of("semicolons between cells", P.replace(",", ";"), "semicolons", "t.csv")
    yield of("tabs between cells", P.replace(",", "\t"), "tabs", ".tsv")
    yield of("pipes between cells", P.replace(",", "|"), "t.csv", "|")
    yield of("decimal commas", "id;y;sex;p\n" + "".join(f"r{i};{i % 2};f;0,{i}\n" for i in range(1, 9)), "semicolons")
    quoted = cells(id=ids, y=y, sex=sex, p=[f'"0,{i + 10}"' for i in range(n)])
    yield of("quoted decimal commas", quoted, "0,10", "decimal point")
    yield of(
        "two columns p",
        cells(id=ids, y=y, sex=sex, p=p).replace("sex,p", "sex,p").replace("\n", ",0.5\n").replace("p,0.5", "p,p"),
        "two columns",
        "p",
    )
    yield of("two columns sex", "id,y,sex,sex,p\nr0,0,f,m,0.5\nr1,1,m,f,0.5\n", "two columns", "sex")
    yield of("two columns y", "id,y,y,sex,p\nr0,0,1,f,0.5\nr1,1,0,m,0.5\n", "two columns", "y")
    both = cells(id=ids, y=y, sex=sex, p=p, p_0=p, p_1=q)
    yield of("p beside contradicting p_0 and p_1", both, "'p'", "p_1", "row 1")
    yield of("p beside one contradicting p_1", cells(id=ids, y=y, sex=sex, p=p, p_1=q), "'p'", "p_1")
    yield of("p with labels that are words", cells(id=ids, y=words, sex=sex, p=p), "whose", "p_ill", "p_well")
    yield of("p of three classes", cells(id=ids, y=[i % 3 for i in range(n)], sex=sex, p=p), "two classes")
    yield of("p above 1", cells(id=ids, y=y, sex=sex, p=[1.5, *p[1:]]), "row 1", "1.5")
    yield of("p below 0", cells(id=ids, y=y, sex=sex, p=[*p[:-1], -0.1]), "row 24", "-0.1")
    yield of("p in percent", cells(id=ids, y=y, sex=sex, p=[f"{100 * v:.0f}%" for v in p]), "10%", "probability")
    yield of("p that is text", cells(id=ids, y=y, sex=sex, p=["high"] * n), "high")
    yield of("p with an empty cell", cells(id=ids, y=y, sex=sex, p=["", *p[1:]]), "row 1")
    yield of("p that is not finite", cells(id=ids, y=y, sex=sex, p=["inf", *p[1:]]), "inf")
    yield of("p_0 and p_1 whose sum is not 1", cells(id=ids, y=y, sex=sex, p_0=p, p_1=p), "sum")
    yield of("no probabilities", cells(id=ids, y=y, sex=sex), "p", "p_0, p_1")
    yield of("logits in place of probabilities", cells(id=ids, y=y, sex=sex, p=[10 * (v - 0.5) for v in p]), "between 0 and 1")
    yield of("an id twice", cells(id=["r0", *ids[:-1]], y=y, sex=sex, p=p), "r0", "row 1")
    yield of("an empty id", cells(id=["", *ids[1:]], y=y, sex=sex, p=p), "id is missing")
    yield of("a fractional label", cells(id=ids, y=[0.5, *y[1:]], sex=sex, p=p), "fractional")
    yield of("rows of more cells than the header", "id,y,sex,p\nr0,0,f,0.5,7\nr1,1,m,0.5,8\n", "more cells")
    yield of("one row of more cells", P + "r99,0,f,0.5,7,8,9\n", "t.csv")
    yield of("no such column", P, "no column 'gender'", "known", command=table.replace("attribute sex", "attribute gender"))
    yield of("a label that is not there", P, "no column 'why'", command=table.replace("label y", "label why"))
    yield of("an empty column name", P, "no column ''", command=table.replace("--attribute sex", "--attribute ''"))
    yield of("a split of other names", P, "it has f, m", command=table + " --split sex")
    yield of("a mapping of no value", P, "7", "0, 1", command=table + " --map 7=1")
    yield of("a mapping of which one matches nothing", P, "9", command=table + " --map 1=0 --map 9=1")
    yield of("a mapping without =", P, "--map", "name=value", command=table + " --map 7")
    yield of("a mapping without a name", P, "--map", command=table + " --map =1")
    yield of("bins of text", P, "--bins", "'sex'", command=table + " --bins sex=2")
    yield of("bins of another column", P, "--bins", "'age'", command=table + " --bins age=2")
    yield of("bins that are no numbers", P, "numbers", command=table + " --bins sex=old")
    yield of(
        "bins that fall",
        P,
        "rising",
        command="audit --predictions t.csv --label y --attribute p --id id --bins p=0.5,0.1 --out {out}",
    )
    yield of("a kind that does not exist", P, "--kind", "categorical", command=table + " --kind sex=numeric")
    yield of("text as a continuous attribute", P, "continuous", command=table + " --kind sex=continuous")
    yield of("a kind of another column", P, "--kind", command=table + " --kind p=continuous")
    yield of("a weight column", P, "--weight", command=table + " --weight p")
    yield of("every value missing", P, command=table + " --missing 0 --missing 1")
    yield of("a label of one cell of 5 MB", P + f"r99,0,{'x' * 5_000_000},0.5\n", "characters")
    yield Bad("a table that is not there", "audit --predictions none.csv --label y --out {out}", ("none.csv",))
    yield Bad("a folder as a table of predictions", "audit --predictions . --label y --out {out}", ("class folders",))
    yield Bad("an Excel file that is none", "audit --predictions t.xlsx --out {out}", ("Excel",), {"t.xlsx": b"PK\x03\x04"})
    yield Bad("an old Excel file", "audit --predictions t.xls --out {out}", (".xlsx",), {"t.xls": b"\xd0\xcf\x11\xe0"})
    bare = "audit --predictions t.csv --out {out}"
    yield of("two columns that could be the label", P.replace("sex", "target"), "'y' and 'target'", "--label", command=bare)
    yield of("no column that could be the label", P.replace("y,", "outc,"), "--label", command=bare)
    scores = cells(id=ids, y=y, sex=sex, score=p, prob=q)
    yield of("two columns that could be the score", scores, "'score' and 'prob'", "--score", command=bare)
    two_splits = cells(id=ids, y=y, fold=["val", "test"] * 12, part=["test", "audit"] * 12, p=p)
    yield of("two columns that could be the split", two_splits, "'fold' and 'part'", "--split", command=bare)
    people = cells(id=ids, y=y, patient=ids, subject=ids, p=p)
    yield of("two columns that could be the subject", people, "'patient' and 'subject'", "--subject", command=bare)
    wide = cells(id=ids, y=y, p=p, **{f"a{k}": [("u", "v", "w")[(i // (k + 1)) % 3] for i in range(n)] for k in range(12)})
    yield of("more attributes than can be meant", wide, "12 columns", "--attribute", command=bare)
    asked = {
        "a score that is not there": ("--score risk", "'risk'", "--score"),
        "a score of no label": ("--score p=3", "'3'", "0, 1"),
        "a score and a prediction": ("--score p --prediction y", "--prediction"),
        "a prediction that is not there": ("--prediction yhat", "'yhat'"),
        "a prediction that is no label": ("--prediction sex", "'f'", "0, 1"),
        "a threshold above 1": ("--threshold 1.5", "between 0 and 1"),
        "a threshold of nothing": ("--threshold nan", "between 0 and 1"),
        "features that are not there": ("--features f.csv", "f.csv"),
        "features of other ids": ("--features other.csv", "other.csv", "24 rows"),
        "features without ids": ("--features none.csv", "none.csv", "'id'"),
        "features that are no numbers": ("--features words.csv", "words.csv", "no numbers"),
        "features of none": ("--features bare.csv", "bare.csv", "no column of features"),
    }
    files = {
        "t.csv": P,
        "other.csv": cells(id=[f"x{i}" for i in range(n)], f_0=p),
        "none.csv": cells(name=ids, f_0=p),
        "words.csv": cells(id=ids, f_0=sex),
        "bare.csv": cells(id=ids),
    }
    for name, (more, *says) in asked.items():
        yield Bad(name, f"{table} {more}", tuple(says), files)
    yield of("words without a class for the score", cells(id=ids, y=words, sex=sex, risk=p), "whose", "risk=ill", command=bare)
    yield Bad("a template over a file", "template t.csv --to t.csv", ("t.csv",), {"t.csv": P})
    yield Bad("a template of a table that is not there", "template none.csv", ("none.csv",))
    yield Bad("Parquet that is text", "audit --predictions t.parquet --label y --out {out}", ("Parquet",), {"t.parquet": "hello"})
    yield Bad("an empty Parquet file", "audit --predictions t.parquet --label y --out {out}", ("Parquet",), {"t.parquet": ""})
    options = {
        "an audit that does not exist": ("--audits group", "did you mean 'groups'"),
        "an audit without a name": ("--audits ''", "known"),
        "an audit named as a path": ("--audits ../groups", "groups"),
        "audits with a comma too many": ("--audits groups,", "known"),
        "a threshold that does not exist": ("--threshold best", "argmax, f1, max_f1"),
        "an aligned label of no level": ("--aligned x=1", "f, m"),
        "an aligned label that is none": ("--aligned f=5", "5"),
        "aligned without =": ("--aligned x", "--aligned"),
        "aligned for one attribute of two": ("--aligned sex:f=0 --aligned m=1", "attribute:value=label"),
        "a setting of no audit": ("--set B=5", "audit.setting=value"),
        "a setting without a value": ("--set groups.B", "audit.setting=value"),
        "a setting that does not exist": ("--set groups.b=5", "no setting 'b'"),
        "a setting of an audit that does not exist": ("--set group.B=5", "not run"),
        "one resample": ("--set groups.B=1", "B", "20"),
        "no resample": ("--set groups.B=0", "B"),
        "less than no resample": ("--set groups.B=-5", "B"),
        "half a resample": ("--set groups.B=99.5", "B", "whole number"),
        "resamples in words": ("--set groups.B=many", "B", "whole number"),
        "a list of resamples": ("--set groups.B=1,2", "B", "whole number"),
        "more resamples than fit": ("--set groups.B=1e12", "B"),
        "level 2": ("--set groups.level=2", "level"),
        "level 0": ("--set groups.level=0", "level"),
        "a level in percent": ("--set groups.level=95", "level"),
        "a level in words": ("--set groups.level=high", "level"),
        "a class that does not exist": ("--set groups.positive=7", "7"),
        "an attribute that does not exist": ("--set groups.attribute=age", "age"),
        "a negative seed": ("--seed -1", "--seed"),
        "a seed in words": ("--seed abc", "--seed"),
        "a fractional seed": ("--seed 1.9", "--seed"),
        "a list as a seed": ("--seed [1]", "--seed"),
        "a model beside predictions": ("--model timm:resnet18", "--model goes with a table of images"),
        "a checkpoint beside predictions": ("--checkpoint w.pt", "--checkpoint"),
        "a size beside predictions": ("--size 8", "--size"),
        "a baseline beside predictions": ("--baseline x", "--baseline"),
        "a start beside predictions": ("--start fresh", "--start"),
        "a device beside predictions": ("--device cpu", "--device"),
        "an image root beside predictions": ("--image p", "--image"),
        "quick and full": ("--quick --full", "one of them"),
        "an option that does not exist": ("--atribute sex", "--atribute"),
        "an option without a value": ("--audits", "--audits"),
        "an argument too many": ("x.csv y.csv", "y.csv"),
        "a study beside predictions": ("study.toml", "--predictions"),
        "a twin that is not there": ("--twin twin", "--twin goes with"),
        "a twin's attribute of two": ("--twin-attribute sex --attribute p", "--twin-attribute"),
        "three columns of a box": ("--box id --box y --box sex", "--box"),
        "a subject in two labels": ("--case sex", "case"),
        "--out that is a file": ("--out taken", "taken", "is a file"),
        "--out below a file": ("--out taken/x", "taken"),
    }
    for name, (more, *says) in options.items():
        yield Bad(name, f"{PREDICTED} {more}", tuple(says), {"taken": "mine"})
    yield Bad("nothing to audit", "audit --out {out}", ("give either",))
    both = {"a.csv": P, "b.csv": P}
    yield Bad("two tables to audit", "audit --out {out}", ("a.csv, b.csv",), both)
    yield Bad("a score without predictions", "audit a.csv --score p --out {out}", ("--predictions",), both)
    yield Bad("two checkpoints", "audit t.csv --out {out}", ("a.pt, b.pt",), {"t.csv": P, "a.pt": b"x", "b.pt": b"x"})
    yield Bad("no checkpoint", "audit t.csv --out {out}", ("no model", ".safetensors"), {"t.csv": P})
    yield Bad(
        "options beside the study.toml of the folder", "audit --label y", ("study.toml", "--label"), {"study.toml": BROUGHT}
    )
    yield Bad("init: nothing to look at", "init", ("no table",))
    yield Bad("init: two tables", "init", ("a.csv, b.csv",), both)
    yield Bad("init: a study that is there", "init t.csv", ("study.toml", "--force"), {"t.csv": P, "study.toml": "mine"})
    yield Bad(
        "init: two columns with images",
        "init t.csv --model timm:resnet18",
        ("'front' and 'side'", "--image"),
        {"t.csv": cells(front=["a.png"] * 4, side=["b.png"] * 4, y=[0, 1, 0, 1])},
    )
    yield Bad(
        "init: two folders with the images",
        "init t.csv --model timm:resnet18",
        ("one", "two", "--root"),
        {"t.csv": cells(file=["a.png"] * 4, y=[0, 1, 0, 1]), "one/a.png": b"x", "two/a.png": b"x"},
    )
    yield Bad("no command", "audt", ("audt",))


NOT_A_TABLE = ('"x"', "[1, 2]", "7", "true", "1979-05-27", "[[1]]")
TABLES = (
    "data", "split", "cohorts", "cohorts.x", "external", "external.x", "architectures", "architectures.cnn", "regimes",
    "regimes.x", "references", "train", "runs", "severities", "extract", "performance", "audits", "audits.groups", "curves",
    "curves.x", "tables", "tables.x", "relations", "relations.x", "pairs", "pairs.x", "engine_settings",
)  # fmt: skip


def tables_of_studies() -> Iterator[Bad]:
    """Every table of a study.toml as a text, a list and a number."""
    for table in TABLES:
        for value in NOT_A_TABLE[:3]:
            if table == "runs" and value.startswith("[1"):
                value = "[1]"
            top, _, inner = table.partition(".")
            rest = without_table(STUDY, top)
            if inner:
                text = f"{rest}\n[{top}]\n{inner} = {value}\n"
            else:
                text = f"{table} = {value}\n{rest}"
            yield Bad(
                f"[{table}] that is {value}",
                "sweep study.toml --out {out} --dry-run",
                (inner or top,),
                {"study.toml": text},
                torch=True,
            )


def studies() -> Iterator[Bad]:
    """study.toml: one wrong line each."""
    lines = {
        ("", "seed = -1"): ("seed", "-1"),
        ("", 'seed = "abc"'): ("seed", "abc"),
        ("", "seed = [1]"): ("seed", "whole number"),
        ("", "seed = 1.9"): ("seed", "1.9"),
        ("", "seed = true"): ("seed",),
        ("", "seed = inf"): ("seed",),
        ("", "name = 7"): ("name",),
        ("", 'name = ""'): ("name",),
        ("", 'depth = "deep"'): ("depth", "quick"),
        ("", 'engine = "slurm"'): ("engine", "slurm"),
        ("", "engine = 1"): ("engine",),
        ("", 'sed = 1'): ("sed", "seed"),
        ("data", "label = 3"): ("label", "a text"),
        ("data", 'label = "why"'): ("why",),
        ("data", "attribute = 3"): ("attribute",),
        ("data", 'attribute = ["gender"]'): ("gender",),
        ("data", 'manifest = "none.csv"'): ("none.csv",),
        ("data", "manifest = 5"): ("manifest",),
        ("data", 'world = "mars"'): ("world",),
        ("data", 'missing = {a = 1}'): ("missing",),
        ("data", 'mapping = {7 = 1}'): ("7",),
        ("data", 'mapping = "x"'): ("mapping",),
        ("data", 'bins = {sex = "456"}'): ("bins",),
        ("data", 'bins = {sex = 2}'): ("bins",),
        ("data", 'kinds = {sex = "numeric"}'): ("kinds",),
        ("data", 'weight = "y"'): ("weight",),
        ("data", 'lable = "y"'): ("lable", "label"),
        ("data", 'root = 5'): ("root",),
        ("split", "fractions = 5"): ("fractions",),
        ("split", "fractions = {train = 2.0}"): ("fractions",),
        ("split", "fractions = {train = -1.0}"): ("fractions",),
        ("split", "fraction = {train = 0.5}"): ("fraction",),
        ("architectures.cnn", "size = 0"): ("size",),
        ("architectures.cnn", 'size = "big"'): ("size",),
        ("architectures.cnn", "size = -16"): ("size",),
        ("architectures.cnn", "model = 5"): ("model",),
        ("architectures.cnn", 'model = "timm:resnet19"'): ("resnet19",),
        ("architectures.cnn", 'model = "resnet18"'): ("timm:",),
        ("architectures.cnn", 'model = "no.such.module:net"'): ("no.such",),
        ("architectures.cnn", "width = -3"): ("width",),
        ("architectures.cnn", "widht = 3"): ("widht",),
        ("architectures.cnn", 'checkpoint = "none.pt"'): ("none.pt",),
        ("architectures.cnn", "mean = [0.5, 0.5]"): ("mean",),
        ("architectures.cnn", "std = 0"): ("std",),
        ("architectures.cnn", 'classes = "01"'): ("classes", "a list"),
        ("architectures.cnn", "classes = [0]"): ("classes",),
        ("architectures.cnn", "crop = 7"): ("crop",),
        ("architectures.cnn", 'interpolation = "best"'): ("interpolation",),
        ("architectures.cnn", "channels = 0"): ("channels",),
        ("train", "epochs = 0"): ("epochs",),
        ("train", "epochs = -1"): ("epochs",),
        ("train", 'epochs = "ten"'): ("epochs",),
        ("train", "epochs = 1.5"): ("epochs",),
        ("train", "batch = 0"): ("batch",),
        ("train", "batch = -4"): ("batch",),
        ("train", "lr = 0"): ("lr",),
        ("train", "lr = -0.1"): ("lr",),
        ("train", "lr = inf"): ("lr",),
        ("train", "lr = nan"): ("lr",),
        ("train", 'lr = "fast"'): ("lr",),
        ("train", 'optimizer = "magic"'): ("optimizer",),
        ("train", 'stop_on = "luck"'): ("stop_on",),
        ("train", "patience = 0"): ("patience",),
        ("train", 'augment = "magic"'): ("augment", "magic"),
        ("train", 'device = "tpu9"'): ("device", "tpu9"),
        ("train", "workers = 0"): ("workers",),
        ("train", "workers = -2"): ("workers",),
        ("train", "weight_decay = -1"): ("weight_decay",),
        ("train", "epoch = 3"): ("epoch", "epochs"),
        ("[[runs]]", "seed = -1"): ("seed",),
        ("[[runs]]", "seed = 1.9"): ("seed",),
        ("[[runs]]", 'seed = "abc"'): ("seed",),
        ("[[runs]]", "seed = []"): ("seed",),
        ("[[runs]]", "seed = [[1]]"): ("seed",),
        ("[[runs]]", 'architecture = "vit"'): ("vit",),
        ("[[runs]]", "architecture = 5"): ("architecture",),
        ("[[runs]]", "architecture = []"): ("architecture",),
        ("[[runs]]", "architecture = [[1]]"): ("architecture",),
        ("[[runs]]", 'regime = "dro"'): ("dro",),
        ("[[runs]]", "regime = {a = 1}"): ("regime",),
        ("[[runs]]", "momentun = 0.5"): ("momentun",),
        ("[[runs]]", "lr = 'fast'"): ("lr",),
        ("[[runs]]", "cohort = 'other'"): ("other",),
        ("regimes.x", 'method = "magic"'): ("magic",),
        ("regimes.x", "method = 5"): ("method",),
        ("regimes.x", 'cohort = "none"'): ("none",),
        ("regimes.x", 'start = "y"'): ("start",),
        ("regimes.x", "references = 5"): ("references",),
        ("cohorts.x", "redrawn = 0"): ("redrawn",),
        ("cohorts.x", "redrawn = 1"): ("world",),
        ("cohorts.x", "bias = {discordant = 0.1, size = -5}"): ("size",),
        ("cohorts.x", "bias = {discordant = -0.5}"): ("discordant",),
        ("cohorts.x", "bias = {discordant = 2.5}"): ("discordant",),
        ("cohorts.x", "bias = {discord = 1}"): ("discord",),
        ("cohorts.x", 'balance = {attribute = "age"}'): ("age",),
        ("external.x", 'manifest = "none.csv"'): ("none.csv",),
        ("external.test", 'manifest = "{data}/data.csv"'): ("test",),
        ("extract", "batch = 0"): ("batch",),
        ("extract", 'batch = "x"'): ("batch",),
        ("extract", "chunk = 33"): ("chunk",),
        ("extract", 'device = "tpu9"'): ("device",),
        ("extract", "batsh = 3"): ("batsh",),
        ("performance", "B = 1"): ("B",),
        ("performance", "level = 2"): ("level",),
        ("performance", "x = 1"): ("x",),
        ("audits.groups", "B = 1"): ("B",),
        ("audits.groups", "B = 1.5"): ("B",),
        ("audits.groups", "level = 2"): ("level",),
        ("audits.groups", 'method = "magic"'): ("magic",),
        ("audits.groups", 'attribute = "age"'): ("age",),
        ("audits.groups", 'threshold = "best"'): ("threshold", "best"),
        ("audits.groups", "roles = 5"): ("roles",),
        ("audits.groups", 'roles = {baseline = "y"}'): ("roles",),
        ("audits.groups", "b = 3"): ("no setting 'b'",),
        ("audits.magic", "B = 50"): ("magic",),
        ("engine_settings", "workers = 0"): ("workers",),
        ("engine_settings", 'workers = "all"'): ("workers",),
        ("engine_settings", "x = 1"): ("x",),
        ("references", 'baseline = "x"'): ("baseline",),
        ("references", "seed = -1"): ("seed",),
        ("references", 'rows = "none"'): ("rows",),
        ("curves.x", "y = 5"): ("y",),
        ("curves.x", 'x = "lr"'): ("y",),
        ("tables.x", "columns = 5"): ("columns",),
        ("relations.x", 'x = "a"'): ("y",),
        ("pairs.x", 'of = ["erm"]'): ("of",),
        ("severities", 'reference = "none"'): ("severities",),
    }  # fmt: skip
    for (table, line), says in lines.items():
        text = with_line(STUDY, table, line)
        if table.startswith("regimes"):
            text = with_line(text, "[[runs]]", 'regime = "x"')
        if table.startswith("cohorts"):
            text = with_line(text, "[[runs]]", 'cohort = "x"')
        yield Bad(
            f"a study with [{table}] {line}", "sweep study.toml --out {out} --dry-run", says, {"study.toml": text}, torch=True
        )
    for (table, line), says in {
        ("model", 'model = "none"'): ("none",),
        ("model", "model = 5"): ("model",),
        ("model", "model = []"): ("model",),
        ("model", "size = 32"): ("size",),
        ("model", "start = 5"): ("start",),
        ("train", "epochs = 3"): ("[model]",),
        ("references", 'baseline = ["none"]'): ("none",),
        ("references", 'baseline = "none"'): ("baseline",),
        ("extract", 'device = "tpu9"'): ("device", "tpu9"),
        ("extract", "batch = 0"): ("batch",),
        ("audits.oscar", 'partitions = "hexagons"'): ("hexagons",),
    }.items():
        text = with_line(BROUGHT, table, line)
        yield Bad(
            f"a brought model with [{table}] {line}", "audit study.toml --out {out}", says, {"study.toml": text}, torch=True
        )
    broken: dict[str, tuple[str | bytes, str]] = {
        "an empty study": ("", "[data]"),
        "a study that is no TOML": ("name = = 3", "TOML"),
        "a study in UTF-16": (STUDY.encode("utf-16"), "UTF-8"),
        "a study in Latin-1": ('name = "größe"\n'.encode("latin-1"), "UTF-8"),
        "a study of zeros": (bytes(100), "TOML"),
        "a study that is JSON": ('{"name": "x"}', "TOML"),
        "a table twice": (STUDY + '[data]\nlabel = "y"\n', "TOML"),
        "a key twice": ('name = "a"\nname = "b"\n', "TOML"),
        "a deeply nested study": ("x = " + "[" * 3000 + "]" * 3000, "TOML"),
        "a study with both models and a model": (STUDY + '[model]\nmodel = "x"\n', "[model]"),
        "a study with neither": (without_table(without_table(STUDY, "runs"), "architectures"), "[model]"),
        "a study without data": (without_table(STUDY, "data"), "[data]"),
        "a number of too many digits": ("seed = " + "1" * 5000, "digits"),
    }
    for name, (text, word) in broken.items():
        for command in ("sweep study.toml --out {out}", "audit study.toml --out {out}", "check study.toml"):
            yield Bad(f"{name}, {command.partition(' ')[0]}", command, (word,), {"study.toml": text}, torch=True)
    for command in (
        "sweep none.toml",
        "sweep .",
        "audit none.toml",
        "check none.toml",
        "sweep {data}/data.csv --out {out}",
        "sweep {data}/w.safetensors --out {out}",
    ):
        yield Bad(f"no study: {command}", command, (), {}, torch=True)
    more = {"audit study.toml --label y": "--label", "audit study.toml --set groups.B=50": "--set", "audit study.toml --model x": "--model",
            "audit study.toml --batch 7": "--batch", "audit study.toml --seed 3": "--seed", "audit study.toml --baseline x": "--baseline",
            "sweep study.toml --out taken": "taken", "audit study.toml --out taken": "taken", "audit study.toml --quick --full --out {out}": "one of them"}  # fmt: skip
    for command, word in more.items():
        yield Bad(f"beside a study: {command}", command, (word,), {"study.toml": BROUGHT, "taken": "mine"}, torch=True)


def networks() -> Iterator[Bad]:
    """A table of images and a model."""
    options = {
        "batch 0": ("--batch 0", "--batch"),
        "a negative batch": ("--batch -3", "--batch"),
        "a batch in words": ("--batch many", "--batch"),
        "a batch of 7": ("--batch 7", "--batch", "7"),
        "a device that does not exist": ("--device tpu9", "--device", "tpu9"),
        "a GPU that is not there": ("--device cuda:99", "cuda:99"),
        "an empty device": ("--device ''", "--device"),
        "workers 0": ("--workers 0", "--workers"),
        "negative workers": ("--workers -1", "--workers"),
        "a negative seed": ("--seed -1", "--seed"),
        "a seed in words": ("--seed abc", "--seed"),
        "a size in words": ("--size big", "--size"),
        "size 0": ("--size 0", "--size"),
        "a negative size": ("--size -16", "--size"),
        "a fractional size": ("--size 16.5", "--size"),
        "a size of four": ("--size 1,2,3,4", "--size"),
        "crop 0": ("--crop 0", "--crop"),
        "crop 7": ("--crop 7", "--crop"),
        "an interpolation that does not exist": ("--interpolation best", "--interpolation"),
        "two means": ("--mean 0.5,0.5", "mean"),
        "a mean in words": ("--mean dark", "--mean"),
        "std 0": ("--std 0", "std"),
        "a mean that is no number": ("--mean nan", "mean"),
        "a std that is no number": ("--std nan", "std"),
        "channels 0": ("--channels 0", "--channels"),
        "channels 9": ("--channels 9", "w.safetensors"),
        "three classes of two": ("--num-classes 3", "w.safetensors"),
        "no classes": ("--num-classes 0", "--num-classes"),
        "classes of another number": ("--classes 0,1,2", "--classes"),
        "a class twice": ("--classes 0,0", "--classes"),
        "classes of other labels": ("--classes ill,well", "ill"),
        "an output that does not exist": ("--output 9", "--output"),
        "an output without a name": ("--output rain", "--output"),
        "a checkpoint that is not there": ("--checkpoint none.pt", "none.pt"),
        "a folder as a checkpoint": ("--checkpoint {data}", "folder"),
        "a text as a checkpoint": ("--checkpoint text.pt", "text.pt"),
        "an empty checkpoint": ("--checkpoint empty.pt", "empty.pt", "empty"),
        "an empty safetensors file": ("--checkpoint empty.safetensors", "empty"),
        "a text as safetensors": ("--checkpoint text.safetensors", "text.safetensors"),
        "a table as a checkpoint": ("--checkpoint {data}/data.csv", "data.csv"),
        "an HTML page as a checkpoint": ("--checkpoint page.pth", "page.pth"),
        "a Git LFS pointer as a checkpoint": ("--checkpoint lfs.safetensors", "Git LFS"),
        "a pickle that runs code": ("--checkpoint {data}/evil.pt", "evil.pt"),
        "a cut checkpoint": ("--checkpoint {data}/cut.pt", "cut.pt"),
        "a cut safetensors file": ("--checkpoint {data}/cut.safetensors", "cut.safetensors"),
        "weights of another width": ("--checkpoint {data}/other.safetensors", "other.safetensors"),
        "student and teacher": ("--checkpoint {data}/two.pt", "student.", "teacher."),
        "state_dict_ema beside state_dict": ("--checkpoint {data}/ema.pt", "state_dict", "state_dict_ema"),
        "int8 weights": ("--checkpoint {data}/int8.pt", "int8"),
        "weights that are not numbers": ("--checkpoint {data}/nan.pt", "NaN"),
        "a mixed class_to_idx": ("--checkpoint {data}/mixed.pt", "class_to_idx"),
        "class_to_idx of words": ("--checkpoint {data}/words.pt", "class_to_idx"),
        "classes of the wrong number in a checkpoint": ("--checkpoint {data}/three.pt", "classes"),
        "a checkpoint that is a list": ("--checkpoint {data}/list.pt", "list"),
        "a checkpoint of one tensor": ("--checkpoint {data}/tensor.pt", "Tensor"),
        "a start that is not there": ("--start none.pt", "none.pt"),
        "a baseline that is not there": ("--baseline none --audits oscar", "none"),
        "a split of other names": ("--split sex", "--split"),
        "an image column that does not exist": ("--image picture", "--image", "picture"),
        "a root that is not there": ("--root none", "none"),
        "a subject in two splits": ("--subject sex", "subject"),
        "an attribute that does not exist": ("--attribute gender", "gender"),
        "a weight": ("--weight y", "--weight"),
        "a mask that is not there": ("--mask image2", "image2"),
        "boxes that are text": ("--box sex", "box"),
        "--out that is a file": ("--out taken", "taken", "is a file"),
        "--out below a file": ("--out taken/x", "taken"),
        "a cache that is a file": ("--cache taken", "taken"),
    }
    files: dict[str, str | bytes] = {
        "taken": "mine", "text.pt": "these are no weights\n", "empty.pt": "", "empty.safetensors": "", "text.safetensors": "no weights",
        "page.pth": "<!doctype html><title>404</title>", "lfs.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    }  # fmt: skip
    for name, (more, *says) in options.items():
        yield Bad(f"a network with {name}", f"{AUDIT} {more}", tuple(says), files, torch=True)
    models = {
        "no model": ("", "--model"),
        "a name without a source": ("--model resnet18", "timm:"),
        "an empty source": ("--model :x", "timm:"),
        "an empty name": ("--model timm:", "timm:"),
        "a model timm does not know": ("--model timm:resnet19", "resnet18"),
        "a model torchvision does not know": ("--model torchvision:resnet19", "resnet18"),
        "a segmentation model": ("--model torchvision:fcn_resnet50", "fcn_resnet50"),
        "a module that is not there": ("--model no.such:net", "no.such"),
        "a factory that is not there": ("--model rightreasons.models.small:big_cnn", "big_cnn"),
        "a factory that gives no network": ("--model rightreasons.models.small:small_settings", "small"),
        "a Hugging Face class that does not exist": ("--model hf:NoSuchForImageClassification", "NoSuch"),
        "a path with dots": ("--model ../../x", "timm:"),
        "a folder without a model": ("--model {data}", "timm:"),
        "a saved model with a size": ("--model {data}/model --size 8", "--size"),
        "a saved model with a checkpoint": ("--model {data}/model --checkpoint {data}/w.safetensors", "--checkpoint"),
    }
    for name, (more, *says) in models.items():
        command = f"audit {{data}}/data.csv {COLUMNS} --audits groups --out {{out}} {more}"
        yield Bad(f"as a model, {name}", command, tuple(says), torch=True)
    options_of_all = f"{NETWORK} {COLUMNS} --out {{out}}"
    gone = "image,y,sex,split\n" + "".join(f"gone{i}.png,{i % 2},f,test\n" for i in range(8))
    named = "id,file,y,sex,split\n" + "".join(
        f"{i},{{data}}/{i}.png,{i % 2},{'fm'[i // 2 % 2]},{'at'[i % 2] and ('audit', 'test')[i // 4 % 2]}\n" for i in range(16)
    )
    for command in ("audit", "extract", "train", "check"):
        given = options_of_all if command != "check" else options_of_all.replace(" --out {out}", "")
        status = 1 if command == "check" else 2
        tables: dict[str, tuple[str, str | bytes | None, tuple[str, ...]]] = {
            "a table that is not there": ("none.csv", None, ("none.csv",)),
            "semicolons": ("t.csv", gone.replace(",", ";"), ("semicolons",)),
            "UTF-16": ("t.csv", gone.encode("utf-16"), ("UTF-8",)),
            "a table with a header alone": ("t.csv", "image,y,sex,split\n", ("no rows",)),
            "an image as a table": ("{data}/0.png", None, ("0.png",)),
        }
        if command not in ("audit", "extract"):  # which find that column
            tables["file names in another column"] = ("t.csv", named, ("--image 'file'",))
        if command != "train":
            tables["images that are not there"] = ("t.csv", gone, ("gone", "--root"))
        for name, (table, content, says) in tables.items():
            files = {} if content is None else {table: content}
            yield Bad(f"{command}: {name}", f"{command} {table} {given}", says, files, status, torch=True)
    settings = {
        "epochs 0": ("--epochs 0", "--epochs"),
        "negative epochs": ("--epochs -1", "--epochs"),
        "batch 0": ("--batch 0", "--batch"),
        "lr 0": ("--lr 0", "--lr"),
        "a negative lr": ("--lr -1", "--lr"),
        "lr nan": ("--lr nan", "--lr"),
        "lr inf": ("--lr inf", "--lr"),
        "patience 0": ("--patience 0", "--patience"),
        "a metric that does not exist": ("--stop-on luck", "luck"),
        "an augmentation that does not exist": ("--augment magic", "magic"),
        "a target that is not there": ("--target age", "age"),
        "a negative seed": ("--seed -1", "--seed"),
        "a device that does not exist": ("--device tpu9", "tpu9"),
        "--out that is a file": ("--out taken", "taken", "is a file"),
        "no training rows": ("--split sex", "train"),
    }
    for name, (more, *says) in settings.items():
        command = f"train {{data}}/data.csv {NETWORK} {COLUMNS} --out {{out}} {more}"
        yield Bad(f"training with {name}", command, tuple(says), {"taken": "mine"}, torch=True)
    for name, (more, *says) in {
        "batch 0": ("--batch 0", "--batch"),
        "an audit that does not exist": ("--audits group", "groups"),
        "a device that does not exist": ("--device tpu9", "tpu9"),
        "a negative seed": ("--seed -1", "--seed"),
        "--out that is a file": ("--out taken", "taken", "is a file"),
    }.items():
        command = f"extract {{data}}/data.csv {NETWORK} {COLUMNS} --audits groups --out {{out}} {more}"
        yield Bad(f"extracting with {name}", command, tuple(says), {"taken": "mine"}, torch=True)
    for name, (command, *says) in {
        "a method that does not exist": ("magic", "magic"),
        "a setting that does not exist": ("erm --set epoch=1", "epochs"),
        "a setting without a value": ("erm --set epochs", "setting=value"),
        "epochs 0": ("erm --set start=fresh --set epochs=0", "epochs"),
        "epochs in words": ("erm --set start=fresh --set epochs=ten", "epochs"),
        "a negative lr": ("erm --set start=fresh --set lr=-1", "lr"),
        "a baseline too many": ("erm --set start=fresh --baseline x", "--baseline"),
        "no baseline": ("attenuation", "--baseline"),
        "a baseline that is not there": ("attenuation --baseline none --attribute-model none", "none"),
        "no start": ("jtt", "start"),
        "a start that is not there": ("jtt --set start=none.pt", "none.pt"),
        "a negative seed": ("erm --seed -1", "--seed"),
        "a device that does not exist": ("erm --set start=fresh --device tpu9", "tpu9"),
        "--out that is a file": ("dfr --out taken", "taken", "is a file"),
        "a dotted module that is not there": ("no.such", "no.such"),
    }.items():
        method, _, rest = command.partition(" ")
        full = f"mitigate {method} {{data}}/data.csv {NETWORK} {COLUMNS} --out {{out}} {rest}"
        yield Bad(f"mitigating with {name}", full, tuple(says), {"taken": "mine"}, torch=True)
    for name, change in {
        "a list": "[]",
        "a number": "7",
        "null": "null",
        "empty": "",
        "no JSON": "{",
        "in UTF-16": '{"format": 1}'.encode("utf-16"),
        "in Latin-1": '{"name": "größe"}'.encode("latin-1"),
        "deeply nested": "[" * 100_000,
        "without keys": '{"format": 1}',
        "of another format": '{"format": 99}',
        "of a huge number": '{"format": 1' + "0" * 5000 + "}",
    }.items():
        yield Bad(
            f"model.json that is {name}",
            f"audit {{data}}/data.csv --model m {COLUMNS} --out {{out}}",
            ("model.json",),
            {"m/model.json": change, "m/model.safetensors": ""},
            torch=True,
        )
    yield Bad(
        "a model without weights",
        f"audit {{data}}/data.csv --model m {COLUMNS} --out {{out}}",
        ("model.safetensors",),
        {"m/model.json": '{"format": 1}'},
        torch=True,
    )


FINDING = json.dumps(
    {"name": "x", "audit": "groups", "question": "?", "row": "behaviour", "verdict": "shortcut", "sentence": "S."}
)


def readers() -> Iterator[Bad]:
    """Commands that read what others wrote."""
    for command in ("gate", "report", "export", "verify"):
        out = {"report": "--out {out}/r.html", "export": "--to {out}"}.get(command, "")
        yield Bad(f"{command}: a folder that is not there", f"{command} none {out}", ("none",))
        yield Bad(f"{command}: an empty folder", f"{command} . {out}", ())
        if command == "verify":
            continue
        contents: dict[str, str | bytes] = {
            "a list": "[]", "a number": "1", "a text": '"x"', "null": "null", "empty": "", "no JSON": "{", "in UTF-16": FINDING.encode("utf-16"),
            "of zeros": bytes(64), "deeply nested": "[" * 200_000, "deeply nested tables": '{"a":' * 200_000, "a huge number": "1" * 10_000, "without keys": "{}",
            "of an unknown verdict": FINDING.replace("shortcut", "guilty"), "of a wrong type": FINDING.replace('"S."', "[1]"),
        }  # fmt: skip
        for name, content in contents.items():
            yield Bad(f"{command}: a finding that is {name}", f"{command} f {out}", ("x.json",), {"f/findings/x.json": content})
    yield Bad("verify: a plan that is a list", "verify s", ("plan.json",), {"s/plan.json": "[]"})
    yield Bad("verify: a plan that is no JSON", "verify s", ("plan.json",), {"s/plan.json": "{"})
    yield Bad("verify: a plan in UTF-16", "verify s", ("plan.json",), {"s/plan.json": "{}".encode("utf-16")})
    yield Bad("verify: a deeply nested plan", "verify s", ("plan.json",), {"s/plan.json": "[" * 200_000})
    yield Bad("report: nothing", "report --out {out}/r.html", ("--compare",))
    yield Bad("report: --compare with one folder twice", "report --compare {data}/audit {data}/audit", ("more than once",))
    yield Bad("report: --compare with what is not there", "report --compare {data}/audit none --out {out}/r.html", ("none",))
    yield Bad("report: --compare with one folder", "report --compare {data}/audit", ("two folders or more",))
    yield Bad("report: a page that is a folder", "report {data}/audit --out sub", ("sub",), {"sub/x": ""})
    yield Bad("report: a page below a file", "report {data}/audit --out taken/r.html", ("taken",), {"taken": ""})
    yield Bad("export: a kind that does not exist", "export {data}/audit --to {out} --only docx", ("docx", "json"))
    yield Bad("export: no kind", "export {data}/audit --to {out} --only ''", ("json",))
    yield Bad("export: into a file", "export {data}/audit --to taken", ("taken",), {"taken": ""})
    policies: dict[str, tuple[str | bytes, str]] = {
        "no TOML": ("= 3", "TOML"),
        "in UTF-16": ('judge = "both"'.encode("utf-16"), "UTF-8"),
        "of zeros": (bytes(10), "TOML"),
        "deeply nested": ("required = " + "[" * 3000, "TOML"),
        "with an unknown key": ("allow = true", "allow_inconclusive"),
        "with an unknown judge": ('judge = "me"', "judge"),
        "with a number for a list": ("required = 5", "required"),
        "with a text for a list": ('required = "groups"', "required"),
        "with thresholds that are a table": ("[thresholds]\nestimate = 'x'", "[[thresholds]]"),
        "with thresholds that are a number": ("thresholds = 3", "[[thresholds]]"),
        "with a threshold without a bound": ("[[thresholds]]\nestimate = 'x'", "at_least"),
        "with a threshold without an estimate": ("[[thresholds]]\nat_least = 1", "estimate"),
        "with a bound in words": ("[[thresholds]]\nestimate = 'x'\nat_least = 'much'", "at_least"),
        "with a bound that is no number": ("[[thresholds]]\nestimate = 'x'\nat_least = nan", "at_least"),
        "with what is accepted without a reason": ("[[accepted]]\nverdict = 'shortcut'", "reason"),
        "with an empty pattern": ('required = [""]', "required"),
    }
    for name, (text, word) in policies.items():
        yield Bad(f"gate: a policy {name}", "gate {data}/audit --policy p.toml", (word,), {"p.toml": text})
    yield Bad("gate: a policy that is not there", "gate {data}/audit --policy none.toml", ("none.toml",))
    yield Bad("gate: a folder as a policy", "gate {data}/audit --policy .", ("policy",))
    yield Bad("gate: a junit file below a file", "gate {data}/audit --junit taken/x.xml", ("taken",), {"taken": ""})
    yield Bad("gate: a junit file that is a folder", "gate {data}/audit --junit sub", ("sub",), {"sub/x": ""})
    yield Bad("serve: a folder that is not there", "serve none", ("none",))
    yield Bad("serve: a file", "serve taken", ("taken",), {"taken": ""})
    yield Bad("serve: a port that is too large", "serve . --port 99999", ("--port",))
    yield Bad("serve: a negative port", "serve . --port -1", ("--port",))
    yield Bad("serve: a port in words", "serve . --port http", ("--port",))
    yield Bad("serve: a host that does not exist", "serve . --host no.such.host.invalid --port 0", ("no.such.host.invalid",))
    yield Bad("serve: an empty host with a bracket", "serve . --host [ --port 0", ("[",))
    yield Bad("demo: a negative seed", "demo --seed -1 --out {out}", ("--seed",), torch=True)
    yield Bad("demo: a seed in words", "demo --seed x --out {out}", ("--seed",))
    yield Bad("demo: --out that is a file", "demo --out taken", ("taken", "is a file"), {"taken": ""}, torch=True)


def clumsy_predictions() -> Iterator[Bad]:
    """Tables of predictions of which a part is right."""
    n = 24
    ids, y = [f"r{i}" for i in range(n)], [i % 2 for i in range(n)]
    sex, p = ["f", "m", "m"] * (n // 3), [round(0.1 + 0.03 * i, 3) for i in range(n)]
    table = "audit --predictions t.csv --label y --attribute sex --id id --out {out}"
    whole = cells(id=ids, y=y, sex=sex, p=p)
    splits = {"split": ["train", "test", "test"] * (n // 3)}
    cases: dict[str, tuple[str | bytes, str, tuple[str, ...]]] = {
        "NaN as a probability": (cells(id=ids, y=y, sex=sex, p=["nan", *p[1:]]), "", ("row 1", "nan")),
        "a probability that overflows": (cells(id=ids, y=y, sex=sex, p=[*p[1:], "1e400"]), "", ("row 24",)),
        "negative probabilities": (cells(id=ids, y=y, sex=sex, p=[-v for v in p]), "", ("between 0 and 1", "24")),
        "probabilities from 0 to 100": (cells(id=ids, y=y, sex=sex, p=[100 * v for v in p]), "", ("between 0 and 1",)),
        "one label alone": (cells(id=ids, y=[1] * n, sex=sex, p=p), "", ("two classes",)),
        "no label at all": (cells(id=ids, y=[""] * n, sex=sex, p=p), "", ("two classes",)),
        "probabilities of other classes": (cells(id=ids, y=y, sex=sex, p_a=p, p_b=p), "", ("p_0, p_1", "p_a")),
        "a class without a probability": (cells(id=ids, y=[i % 3 for i in range(n)], sex=sex, p_0=p, p_1=p), "", ("p_2",)),
        "rows in no split": (cells(id=ids, y=y, sex=sex, p=p, split=["", "test"] * (n // 2)), "--split split", ("row 1", "in no split")),
        "all rows in train": (cells(id=ids, y=y, sex=sex, p=p, split=["train"] * n), "--split split", ("'test'", "train")),
        "a split in capitals": (cells(id=ids, y=y, sex=sex, p=p, split=["Test"] * n), "--split split", ("'test'", "Test")),
        "an id in two splits": (cells(id=["r1", *ids[1:]], y=y, sex=sex, p=p, **splits), "--split split", ("r1", "row 2")),
        "a subject in two splits of predictions": (
            cells(id=ids, y=y, sex=sex, p=p, s=[i // 3 for i in range(n)], **splits), "--split split --subject s", ("subject '0'",),
        ),
        "ids that differ in spaces": (cells(id=["r1 ", " r1", *ids[2:]], y=y, sex=sex, p=p), "", ("r1", "row 2")),
        "the label as an attribute": (whole, "--attribute y", ("'y'", "--label", "--attribute")),
        "a quote that is never closed": (whole.replace("r5,", '"r5,'), "", ("t.csv",)),
        "a zero byte in a cell": (whole.replace("r5,", "r\0005,"), "", ("t.csv", "UTF-8")),
        "line ends of an old Mac": (whole.replace("\n", "\r").encode(), "", ("t.csv",)),
        "a column of adjudicated labels beside predictions": (whole, "--truth y", ("--truth",)),
        "B in exponents": (whole, "--set groups.B=1e3", ("B", "whole number")),
        "B that is NaN": (whole, "--set groups.B=nan", ("B", "whole number")),
    }  # fmt: skip
    for name, (content, more, says) in cases.items():
        yield Bad(name, f"{table} {more}", says, {"t.csv": content})


def _array(dtype: str, *shape: int, value: float = 0) -> bytes:
    found = io.BytesIO()
    np.save(found, np.full(shape, value, dtype=dtype), allow_pickle=True)
    return found.getvalue()


def clumsy_images() -> Iterator[Bad]:
    """One image of a table is none."""
    images: dict[str, tuple[str, bytes | str | None, str]] = {
        "empty": ("x.png", b"", "x.png"),
        "a text": ("x.png", "no image", "x.png"),
        "half a PNG": ("x.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10", "x.png"),
        "an SVG": ("x.svg", "<svg/>", "x.svg"),
        "a folder": ("sub", None, "sub"),
        "a web address": ("http://x.invalid/y.png", None, "http://x.invalid/y.png"),
        "of seven channels": ("x.npy", _array("uint8", 16, 16, 7), "7 channels"),
        "of floats that are no shares": ("x.npy", _array("float32", 16, 16, 3, value=300), "expected [0, 1]"),
        "of negative floats": ("x.npy", _array("float32", 16, 16, 3, value=-0.5), "expected [0, 1]"),
        "of NaN": ("x.npy", _array("float32", 16, 16, 3, value=float("nan")), "nan"),
        "of Python objects": ("x.npy", _array("object", 16, 16), "x.npy"),
        "another file of this machine": ("/etc/hostname", None, "/etc/hostname"),
    }
    for name, (file, content, word) in images.items():
        rows = "".join(f"{{data}}/{i}.png,{i % 2},{'fm'[i // 2 % 2]},{('audit', 'test')[i // 4 % 2]}\n" for i in range(1, 16))
        files = {"t.csv": f"image,y,sex,split\n{file},0,f,test\n{rows}", "sub/x": ""}
        if content is not None:
            files[file] = content  # type: ignore[assignment]
        for command, status in (("audit", 2), ("check", 1)):
            given = f"{NETWORK} {COLUMNS}" + (" --audits groups --out {out}" if command == "audit" else "")
            yield Bad(f"{command}: an image that is {name}", f"{command} t.csv {given}", (word,), dict(files), status, torch=True)


EVIL = "from pathlib import Path\nPath('executed').write_text('x')\n\n\ndef net(**settings):\n    return None\n"


def clumsy_networks() -> Iterator[Bad]:
    """Commands that run a network: other code, repairs, adjudicated labels, one column in two parts."""
    table = f"{{data}}/data.csv {COLUMNS}"
    whole = f"{table} {NETWORK}"
    study = {"study.toml": BROUGHT}
    cases: dict[str, tuple[str, tuple[str, ...], dict[str, str | bytes]]] = {
        "audit: code of one's own": (f"audit {table} --model evil:net --out {{out}}", ("--trust evil",), {}),
        "check: code of one's own": (f"check {table} --model evil:net", ("--trust evil",), {}),
        "check: fitting code of one's own": (f"check {table} --model evil:net --fit-preprocessing", ("--trust evil",), {}),
        "extract: code of one's own": (f"extract {table} --model evil:net --out {{out}}", ("--trust evil",), {}),
        "train: code of one's own": (f"train {table} --model evil:net --out {{out}}", ("--trust evil",), {}),
        "train: an augmentation of one's own": (f"train {whole} --augment evil:f --out {{out}}", ("--trust evil",), {}),
        "mitigate: code of one's own": (f"mitigate dfr {table} --model evil:net --out {{out}}", ("--trust evil",), {}),
        "mitigate auto: code of one's own": (f"mitigate auto {table} --model evil:net --out {{out}}", ("--trust evil",), {}),
        "mitigate: an augmentation of one's own": (
            f"mitigate erm {whole} --set start=fresh --set augment=evil:f --out {{out}}", ("--trust evil",), {},
        ),
        "mitigate: a method of one's own": (f"mitigate evil.net {whole} --out {{out}}", ("--trust evil.net",), {}),
        "audit: an audit of one's own": (f"audit {whole} --audits evil.net --out {{out}}", ("--trust evil.net",), {}),
        "audit: maps of one's own": (f"audit {whole} --audits focus --set focus.maps=maps@evil.f --out {{out}}", ("--trust evil.f",), {}),
        "trusting a function": (f"check {table} --model evil:net --trust evil:net", ("name of a module",), {}),
        "trusting a path": (f"check {table} --model evil:net --trust ./evil.py", ("name of a module",), {}),
        "trusting another module": (f"check {table} --model evil:net --trust evi", ("--trust evil ",), {}),
        "mitigate auto with a setting": (f"mitigate auto {whole} --set epochs=3 --out {{out}}", ("--set",), {}),
        "mitigate auto with a baseline": (f"mitigate auto {whole} --baseline {{data}}/model --out {{out}}", ("--baseline",), {}),
        "mitigate auto without a model": (f"mitigate auto {table} --out {{out}}", ("--model",), {}),
        "mitigate auto without an attribute": (
            f"mitigate auto {{data}}/data.csv --label y --split split {NETWORK} --out {{out}}", ("--attribute",), {},
        ),
        "mitigate auto without rows to train on": (
            f"mitigate auto t.csv --label y --attribute sex --split s {NETWORK} --out {{out}}", ("split 'val'",),
            {"t.csv": "image,y,sex,s\n" + "".join(f"{{data}}/{i}.png,{i % 2},{'fm'[i // 2 % 2]},test\n" for i in range(24))},
        ),
        "mitigate auto without rows to report on": (
            f"mitigate auto t.csv --label y --attribute sex --split s {NETWORK} --out {{out}}", ("'test'", "train"),
            {"t.csv": "image,y,sex,s\n" + "".join(f"{{data}}/{i}.png,{i % 2},{'fm'[i // 2 % 2]},train\n" for i in range(24))},
        ),
        "mitigate: --train with a method": (f"mitigate dfr {whole} --train --out {{out}}", ("--train",), {}),
        "mitigate: an attribute that is not there": (
            f"mitigate auto {{data}}/data.csv --label y --attribute age --split split {NETWORK} --out {{out}}", ("age",), {},
        ),
        "adjudicated labels that are not there": (f"audit {whole} --truth seen --out {{out}}", ("--truth 'seen'", "no column"), {}),
        "adjudicated labels that are none": (f"audit {whole} --truth sex --out {{out}}", ("--truth 'sex'", "f, m", "0, 1"), {}),
        "adjudicated labels that are the label": (f"audit {whole} --truth y --out {{out}}", ("--truth 'y'", "label itself"), {}),
        "adjudicated labels that no audit reads": (
            f"audit t.csv {COLUMNS} {NETWORK} --truth seen --audits groups --out {{out}}", ("--truth 'seen'", "excess"),
            {"t.csv": "image,y,sex,split,seen\n" + "".join(f"{{data}}/{i}.png,{i % 2},f,test,{i % 2}\n" for i in range(24))},
        ),
        "the label as an attribute of images": (f"audit {whole} --attribute y --out {{out}}", ("'y'", "--label", "--attribute"), {}),
        "images as their own twins": (f"audit {whole} --twin image --out {{out}}", ("'image'", "--twin"), {}),
        "a crop of next to nothing": (f"audit {whole} --crop 0.001 --out {{out}}", ("--crop", "0.05"), {}),
        "a size of no end": (f"audit {whole} --size 1e400 --out {{out}}", ("--size",), {}),
        "a learning rate of no end": (f"train {whole} --lr inf --out {{out}}", ("--lr",), {}),
        "a learning rate that is NaN": (f"train {whole} --lr nan --out {{out}}", ("--lr",), {}),
        "the label as a target": (f"train {whole} --target y --out {{out}}", ("y",), {}),
        "check: a label beside a study": ("check study.toml --label y", ("--label",), study),
        "check: a model beside a study": ("check study.toml --model {data}/model", ("--model",), study),
        "check: fitting without a model": (f"check {table} --fit-preprocessing", ("--model", "--checkpoint"), {}),
        "check: a study that trusts itself": ("check study.toml", ("trust",), {"study.toml": with_line(BROUGHT, "", 'trust = ["evil"]')}),
    }  # fmt: skip
    for name, (command, says, files) in cases.items():
        yield Bad(name, command, says, {"evil.py": EVIL, "pyarrow.py": EVIL, **files}, torch=True)
    audits = {
        "a level in percent": ("groups", 'level = "95%"', ("level",)),
        "resamples in words": ("groups", 'B = "many"', ("B",)),
        "a date for resamples": ("groups", "B = 2020-01-01", ("B",)),
        "a table in a table": ("groups.x", "B = 50", ("'x'",)),
        "a cohort": ("groups", 'cohort = "val"', ("cohort",)),
        "its own seed": ("groups", "seed = 5", ("seed",)),
        "its own generator": ("groups", "rng = 5", ("rng",)),
        "the label for an attribute": ("groups", 'attribute = "y"', ("'y'",)),
        "two attributes": ("groups", 'attribute = ["sex"]', ("attribute",)),
        "a list for what goes with a label": ("pull", "aligned = [0, 1]", ("aligned",)),
        "folds": ("probes", "folds = 1", ("folds",)),
        "no name": ('""', "B = 50", ("''",)),
        "the name of a module": ('"os.path"', "B = 50", ("--trust os.path",)),
        "the method of a module": ("x", 'method = "os.path"', ("--trust os.path",)),
    }
    for name, (audit, line, words) in audits.items():
        text = f"{BROUGHT}\n[audits.{audit}]\n{line}\n".replace("[audits.groups]\n\n[audits.groups]", "[audits.groups]")
        yield Bad(f"an audit of a study with {name}", "audit study.toml --out {out}", words, {"study.toml": text}, torch=True)


def clumsy_readers() -> Iterator[Bad]:
    """Folders of findings, seals and policies."""
    key = {"short": "secret", "sub/x": "", "model/model.json": "{}", "model/plan.json": "{}"}
    policies = {
        "bounds that cross": ("[[thresholds]]\nestimate = 'x'\nat_least = 0.9\nat_most = 0.1", "no number can keep"),
        "a bound of no end": ("[[thresholds]]\nestimate = 'x'\nat_least = inf", "at_least"),
        "a bound that is true": ("[[thresholds]]\nestimate = 'x'\nat_least = true", "at_least"),
        "a date": ("[[accepted]]\nverdict = 'shortcut'\nreason = 'x'\nuntil = 2020-01-01", "until"),
        "a verdict of its own": ("[[accepted]]\nverdict = 'guilty'\nreason = 'x'", "guilty"),
        "an empty reason": ("[[accepted]]\nverdict = 'shortcut'\nreason = ''", "reason"),
        "words for a choice": ('allow_inconclusive = "yes"', "allow_inconclusive"),
        "trust": ('trust = ["os"]', "trust"),
    }
    for name, (text, word) in policies.items():
        yield Bad(f"gate: a policy with {name}", "gate {data}/audit --policy p.toml", (word,), {"p.toml": text})
    for name, (command, *says) in {
        "seal: a folder that is not there": ("seal none", "none"),
        "seal: a file": ("seal short", "short", "not a folder"),
        "seal: a folder without files": ("seal {out}", "not a folder"),
        "seal: a key that is not there": ("seal sub --key none", "no key at none"),
        "seal: a key of six bytes": ("seal sub --key short", "6 bytes"),
        "seal: a folder as a key": ("seal sub --key sub", "sub", "folder"),
        "verify: a file": ("verify short", "short is a file"),
        "verify: a key that is not there": ("verify sub --key none", "no key at none"),
        "verify: a folder that nobody sealed": ("verify sub", "seal.json", "rightreasons seal"),
        "verify: a saved model": ("verify model", "saved model"),
        "verify: trusting a function": ("verify sub --trust os:system", "name of a module"),
        "export: into the folder of the findings": ("export {data}/audit --to {data}/audit", "choose another"),
        "export: into the findings": ("export {data}/audit --to {data}/audit/findings", "choose another"),
        "export: a kind in capitals": ("export {data}/audit --to {out} --only JSON", "json"),
        "export: a finding": ("export {data}/audit/findings/groups.json --to {out}", "folder"),
        "report: a folder twice": ("report {data}/audit {data}/audit/. --out {out}/r.html", "given twice"),
        "report: a sheet as a finding": ("report {data}/audit/concluded.json --out {out}/r.html", "concluded.json"),
        "report: --compare with a table": ("report --compare {data}/audit {data}/p.csv --out {out}/r.html", "p.csv"),
        "report: --compare with a saved model": ("report --compare {data}/audit model --out {out}/r.html", "model.json"),
        "gate: a saved model": ("gate model", "model.json"),
        "gate: a table": ("gate {data}/p.csv", "p.csv"),
        "serve: a port that is a fraction": ("serve . --port 80.5", "--port"),
    }.items():  # fmt: skip
        yield Bad(name, command, tuple(says), key)


def every() -> list[Bad]:
    old = [*predictions(), *tables_of_studies(), *studies(), *networks(), *readers()]
    return [*old, *clumsy_predictions(), *clumsy_images(), *clumsy_networks(), *clumsy_readers()]
