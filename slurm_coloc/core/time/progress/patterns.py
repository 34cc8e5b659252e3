# SPDX-License-Identifier: Apache-2.0
"""What one line of a log says: a counter of steps, the label of an epoch, a time left.

Known are tqdm's bars (also Lightning's and the Hugging Face Trainer's), Keras' and Rich's bars, the
Trainer's dictionaries, and plain prints that name an epoch, a step or an iteration. The text is a
user's: lines are cut, and every pattern reads a line once.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINE = 400  # characters of a line that are read
MOST = 1e12  # no counter is larger

_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|[\x08\x00]")
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
#: 45%|####  | 450/1000 [01:30<01:50, 5.00it/s]
_TQDM = re.compile(
    r"\d{1,3}%\|[^|]{0,200}\|\s*(\d[\d.]{0,11})([kMGT]?)/(\d[\d.]{0,11})([kMGT]?)\s*\[([\d:]{4,12})<"
)
#: Epochs:  10%|#         | 1/10 [
_EPOCHS_BAR = re.compile(
    r"^\W{0,4}epochs?\W{0,4}\d{1,3}%\|[^|]{0,200}\|\s*(\d{1,9})/(\d{1,9}) \[", re.IGNORECASE
)
#: 450/1000 [====>....] - ETA: 1:50, and 450/1000 ━━━━━━━━ 1:50 5ms/step
_KERAS = re.compile(
    r"^\s*(\d{1,12})/(\d{1,12}) (?:\[[=>.]{3,60}\]|[━╸╺─]{2,80}.{0,40}/(?:step|epoch))"
)
#: Epoch 3/9 ━━━━━━━━ 450/1000 0:01:30 • 0:01:50 5.00it/s
_RICH = re.compile(r"[━╸╺─]{2,200} (\d{1,12})/(\d{1,12}) (\d[\d:]{3,11}) •")
_STEP = (
    re.compile(
        rf"\b(?:global[ _-]?)?(?:step|iter|iteration|batch|update)s?\b[\s:=#\[(-]{{0,12}}{_NUMBER}"
        rf"\s{{0,8}}(?:/|of|out of)\s{{0,8}}{_NUMBER}",
        re.IGNORECASE,
    ),
    # Epoch: [3][ 450/1000], Train Epoch: 3 [28800/60000 (48%)]
    re.compile(
        rf"\[\s{{0,8}}{_NUMBER}\s{{0,4}}/\s{{0,8}}{_NUMBER}\s{{0,4}}(?:\(\s{{0,3}}\d[\d.]*%\))?\]"
    ),
    # epoch 003:    450 / 1000
    re.compile(rf"\bepoch \d{{1,6}}:\s{{1,8}}{_NUMBER} / {_NUMBER}"),
)
_STEP_ALONE = re.compile(
    r"\b(?:global[ _-]?)?(?:step|iter|iteration)\b['\"]?\W{0,4}(\d{1,12})(?!\d|\.\d|\s?/|:\d)",
    re.IGNORECASE,
)
_EPOCH_OF = re.compile(
    rf"\bepochs?\b(?:\(train\))?\W{{0,6}}{_NUMBER}\s{{0,8}}(?:/|of|out of)\s{{0,8}}(\d{{1,9}})",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"\bepochs?\b(?:\(train\))?['\"]?[\s:=#\[(|-]{0,6}(\d{1,9})(?!\d|\.\d|[\d.:]*%)", re.IGNORECASE
)
#: {'loss': 0.5, 'epoch': 1.53}
_EXACT = re.compile(r"['\"]epoch['\"]: ['\"]?(\d{1,7}\.\d{1,12})")
#: Train: 3 [ 450/1251 ( 36%)]
_TRAIN = re.compile(r"\btrain(?:ing)?: (\d{1,6}) \[\s{0,8}\d{1,9}/", re.IGNORECASE)
#:       3/100      2.5G     1.234
_GIB = re.compile(r"^\s{2,12}(\d{1,6})/(\d{1,6})\s{1,12}[\d.]{1,6}G\s")
_ETA = re.compile(r"\beta: (?:(\d{1,4}) days?, )?(\d{1,4}):(\d\d)(?::(\d\d))?", re.IGNORECASE)
_EPOCHS_SET = re.compile(
    r"(?<![a-z])(?:num[_-]train[_-]|max[_-]|num[_-]|n[_-]|total[_-]|train[_-])?epochs"
    r"['\"]?[ \t]{0,4}[:= \0][ \t]{0,4}(\d{1,7})\b(?![\d.]*\s{0,2}[/%])",
    re.IGNORECASE,
)
_NUM_EPOCHS = re.compile(
    r"\bnum epochs\s{0,4}[=:]\s{0,4}(\d{1,3}(?:,\d{3}){1,3}|\d{1,9})", re.IGNORECASE
)
_STEPS_SET = re.compile(
    r"(?<![a-z])(?:max[_-]steps|max[_-]iters?|total[_-]steps|train[_-]iters|num[_-]steps"
    r"|num[_-]train[_-]steps|training[_-]steps|max[_-]train[_-]steps|num[_-]iterations)"
    r"['\"]?[ \t]{0,4}[:= \0][ \t]{0,4}(\d{1,12})\b",
    re.IGNORECASE,
)
_NUM_STEPS = re.compile(
    r"\btotal optimization steps\s{0,4}[=:]\s{0,4}(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})", re.IGNORECASE
)
_TRAINER = re.compile(r"num[_-]train[_-]epochs|\bTotal optimization steps\b")
_OTHER = re.compile(
    r"\b(?:val|valid|validat\w{0,8}|eval\w{0,10}|test\w{0,4}|predict\w{0,6}|sanity"
    r"|download\w{0,4}|fetch\w{0,4}|map|filter|tokeniz\w{0,5}|load\w{0,4}|generating"
    r"|extract\w{0,4}|caching|prepar\w{0,5}|shards?|convert\w{0,4}|resolving)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"loss|acc|error|perplexity|\bppl\b|\btook\b|\bf1\b|\bmse\b|\bauc\b", re.IGNORECASE
)
#:   epoch    train_loss    valid_acc, and below it       3        0.5123
_HEADER = re.compile(r"^\s{0,12}epoch\s{2,}[a-z_]{3,}", re.IGNORECASE)
_ROW = re.compile(r"^\s{1,12}(\d{1,6})\s{2,12}[-+]?\d")
_WHOLE = ("Epoch(train)", "Iter(train)", " iter: ")
_RULE = re.compile(r"^[-=*]{3,80}$")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True)
class Counter:
    """``done`` of ``total``; ``elapsed_s``: since it began, where it says that."""

    done: float
    total: float
    elapsed_s: float | None = None


def lines(text: str) -> Iterator[str]:
    """Lines as a terminal would have them, each cut: a bar writes over its own line."""
    for line in re.split(r"[\r\n]+", text):
        if line:
            yield _ESCAPES.sub("", line[: LINE * 2])[:LINE]


def is_header(line: str) -> bool:
    """The names of a table that has a row an epoch, as Skorch prints it."""
    return bool(_HEADER.match(line))


def row(line: str) -> float | None:
    """The epoch of a row of such a table."""
    hit = _ROW.match(line)
    return float(hit[1]) if hit else None


def label(line: str) -> tuple[float, float | None] | None:
    """The epoch that a line names, and of how many."""
    if hit := _GIB.search(line):
        return float(hit[1]), float(hit[2])
    if hit := _EPOCHS_BAR.search(line):  # so many are over, which is the label of the next
        return float(hit[1]) + 1, float(hit[2])
    if hit := _TRAIN.search(line):
        return float(hit[1]), None
    if "poch" not in line and "POCH" not in line:
        return None
    if (hit := _EPOCH_OF.search(line)) and _plausible(line, hit):
        return float(hit[1]), float(hit[2])
    if (hit := _EPOCH.search(line)) and not _EPOCHS_SET.match(line[hit.start() :]):
        return float(hit[1]), None
    return None


def _plausible(line: str, hit: re.Match[str]) -> bool:
    return float(hit[1]) <= float(hit[2]) and not _OTHER.search(line[: hit.start()])


def counter(line: str) -> Counter | None:
    """The counter of steps in a line; None for none, or one of something else than training."""
    if _EPOCHS_BAR.search(line):
        return None
    if hit := _TQDM.search(line):
        if _OTHER.search(line[: hit.start()]):
            return None
        done, total = _scaled(hit[1], hit[2]), _scaled(hit[3], hit[4])
        return _checked(done, total, _seconds(hit[5]))
    if hit := _KERAS.search(line):
        return _checked(float(hit[1]), float(hit[2]), None)
    if hit := _RICH.search(line):
        if _OTHER.search(line[: hit.start()]):
            return None
        return _checked(float(hit[1]), float(hit[2]), _seconds(hit[3]))
    epoch = _EPOCH_OF.search(line)
    for pattern in _STEP:
        for hit in pattern.finditer(line):
            of_epochs = epoch is not None and epoch.start() <= hit.start() < epoch.end()
            if not of_epochs and not _OTHER.search(line[: hit.start()]):
                return _checked(float(hit[1]), float(hit[2]), None)
    return None


def _checked(done: float | None, total: float | None, elapsed_s: float | None) -> Counter | None:
    if done is None or total is None or not 0 <= done <= total <= MOST or total < 2:
        return None
    return Counter(done, total, elapsed_s)


def own_time_left(line: str) -> float | None:
    """Detectron2's and MMEngine's own figure, which is of the whole run."""
    if "eta" not in line or not (
        "Epoch(train)" in line or "Iter(train)" in line or " iter: " in line
    ):
        return None
    hit = _ETA.search(line)
    if hit is None:
        return None
    days, first, second, third = (int(one or 0) for one in hit.groups())
    if hit[4] is None:
        return days * 86400.0 + first * 60 + second
    return days * 86400.0 + first * 3600 + second * 60 + third


def step_alone(line: str) -> float | None:
    """The number of a step, of nobody knows how many."""
    hit = _STEP_ALONE.search(line)
    return float(hit[1]) if hit and not _OTHER.search(line[: hit.start()]) else None


def exact_epoch(line: str) -> float | None:
    """Epochs done, with a fraction, in a dictionary of the Trainer's."""
    hit = _EXACT.search(line)
    return float(hit[1]) if hit else None


def has_result(line: str) -> bool:
    """Whether it tells how an epoch went, which is known at its end."""
    return bool(_RESULT.search(line))


def is_rule(line: str) -> bool:
    """A line of dashes."""
    return bool(_RULE.match(line.strip()))


def is_rich(line: str) -> bool:
    """A bar of Rich's, whose labels of epochs go from 0 to the last one's number."""
    return bool(_RICH.search(line))


def set_epochs(text: str) -> float | None:
    """How many epochs a run was told to take, by its command line or its log's begin."""
    return _set(text, _NUM_EPOCHS, _EPOCHS_SET)


def set_steps(text: str) -> float | None:
    """The same of steps."""
    return _set(text, _NUM_STEPS, _STEPS_SET)


def is_trainer(text: str) -> bool:
    """Whether the Hugging Face Trainer runs, whose bar is of the whole run."""
    return bool(_TRAINER.search(text))


def _set(text: str, *patterns: re.Pattern[str]) -> float | None:
    """What the run was started with, by the first of ``patterns`` that says so."""
    for pattern in patterns:
        if hit := pattern.search(text):
            return float(hit[1].replace(",", ""))
    return None


def _scaled(text: str, unit: str) -> float | None:
    try:
        return float(text) * _SCALE[unit]
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    """Of 01:30 or 1:02:03."""
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isdigit() for part in parts):
        return None
    total = 0.0
    for part in parts:
        total = total * 60 + int(part)
    return total
