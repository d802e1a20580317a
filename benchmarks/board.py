"""All rows as tables in Markdown, synthetic data apart from all other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.results import (
    Folder,
    Measurement,
    Row,
    measurements,
    read_measurement,
    read_row,
    rows,
)
from seqtrans.errors import DataError
from seqtrans.files import write_whole
from seqtrans.reuse import read_command

BEGIN = "<!-- tables: written by python -m benchmarks board -->"
END = "<!-- end of tables -->"
COLUMNS = (
    "recipe",
    "seed",
    "score",
    "parameters",
    "updates",
    "training",
    "decoding",
    "decoder",
    "machine",
    "signature",
)
SYNTHETIC_NOTE = (
    "Written by a program, for tests and demonstrations. Scores here say nothing about scores on "
    "real data."
)


def main(argv: list[str]) -> int:
    """Show all rows as tables, and write them into the README of the results.

    usage: python -m benchmarks board [results=FOLDER]

    There is a table for each data, split and metric; synthetic data stands apart. The README is
    the one in the folder around the results.

    example: python -m benchmarks board
    """
    settings, _ = read_command(argv, Folder)
    tables = tables_of(settings.results)
    readme = readme_of(settings.results)
    before, after = around(readme)
    write_whole(readme, before + tables + after)
    print(tables, end="")
    return 0


def readme_of(folder: Path) -> Path:
    """The README that holds the tables of a folder of rows."""
    return folder.resolve().parent / "README.md"


def around(readme: Path) -> tuple[str, str]:
    """What stands before and after the tables. Raises ``DataError`` without the two markers."""
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end:
        raise DataError(f"{readme} must hold the lines {BEGIN} and {END}, between them the tables.")
    return text[: begin + len(BEGIN)] + "\n\n", "\n" + text[end:]


def out_of_date(folder: Path) -> list[str]:
    """What is wrong with the tables in the README, a sentence each."""
    readme = readme_of(folder)
    try:
        before, after = around(readme)
        tables = tables_of(folder)
    except DataError as error:
        # A file that is no row is told of with the rows.
        return [str(error)] if str(readme) in str(error) else []
    if readme.read_text(encoding="utf-8") != before + tables + after:
        return [f"{readme}: the tables are not those of the rows; run python -m benchmarks board."]
    return []


def tables_of(folder: Path) -> str:
    """All that a folder holds."""
    measured = list(map(read_measurement, measurements(folder)))
    tables = render(map(read_row, rows(folder)))
    return tables + ("\n" + render_measured(measured) if measured else "")


def render_measured(found: list[Measurement]) -> str:
    """One table of measurements, and one for each comparison of variants or decoders and each kind
    of race against other toolkits.
    """
    races = [one for one in found if "contestants" in one.figures]
    parts = [
        f"### {title}\n\n{race(mine)}"
        for kind, title in (("train", "Speed of training"), ("decode", "Speed of decoding"))
        if (mine := [one for one in races if one.figures["kind"] == kind])
    ]
    compared = [one for one in found if {"variants", "decoders"} & one.figures.keys()]
    parts += map(comparison, compared)
    parts += map(preparation, prepared := [one for one in found if "taken" in one.figures])
    # The exponents of time and of memory hold the same figures.
    layers = {one.recipe: one for one in found if "bytes" in one.figures}
    parts += map(long_inputs, layers.values())
    lines = []
    for one in found:
        if one in races or one in compared or one in prepared:
            continue
        link = f"[{one.recipe}](results/{one.name})"
        lines.append((link, one.metric, f"{one.value:.3f}", one.better, machine_of(one)))
    if lines:
        heads = ("measured", "metric", "value", "better", "machine")
        parts.append("### Measurements\n\n" + written(heads, lines))
    return "\n".join(parts)


def comparison(measured: Measurement) -> str:
    """The scores of variants, each seed's; or those of decoders, with their time."""
    figures = measured.figures
    if "decoders" in figures:
        metric, note = figures["metric"], machine_of(measured)
        body = searches(figures)
    else:
        metric, note = measured.metric, f"{measured.better} is better"
        body = scores(figures)
    return (
        f"### {measured.recipe}: {metric} of {figures['data']}, {figures['split']}\n\n"
        f"{note[0].upper()}{note[1:]}; `{measured.command}`; `{figures['signature']}`.\n\n{body}"
    )


def preparation(measured: Measurement) -> str:
    """How long each way to prepare a corpus takes, its steps below it, and in how much memory."""
    figures = measured.figures
    first, lines = figures["taken"][0], []
    for one in figures["taken"]:
        first = one if one["name"] == first["name"] else first
        steps, whole = one["steps"], total(one)
        times = f"{whole['seconds'] / total(first)['seconds']:.1f}"
        rate = f"{figures['pairs'] / whole['seconds']:,.0f}"
        lines.append((one["name"], *amounts(whole), rate, times))
        if len(steps) > 1:
            lines += [(f"– {step['name']}", *amounts(step), "", "") for step in steps]
    heads = ("", "seconds", "processor, s", "peak, MB", "pairs/s", "× our time")
    others = ", ".join(f"{name} {what}" for name, what in measured.versions.providers.items())
    return (
        f"### Preparing {figures['pairs']:,} pairs\n\n"
        f"{machine_of(measured)}; {others and others + '; '}`{measured.command}`.\n\n"
        + written(heads, lines)
    )


def total(taken: Mapping[str, Any]) -> dict[str, float]:
    """What all steps of a way took, one after the other."""
    steps = taken["steps"]
    found = {key: sum(step[key] for step in steps) for key in ("seconds", "processor")}
    return {**found, "peak": max(step["peak"] for step in steps)}


def amounts(step: Mapping[str, float]) -> tuple[str, str, str]:
    """Seconds, seconds of processors, and megabytes."""
    return (
        f"{step['seconds']:,.1f}",
        f"{step['processor']:,.1f}",
        f"{step['peak'] / 1e6:,.0f}",
    )


def long_inputs(measured: Measurement) -> str:
    """Seconds and megabytes of a layer for each length, and how many times the first's each is."""
    seconds, memory = measured.figures["seconds"], measured.figures["bytes"]
    ours, *others = seconds
    lines = []
    for length, own in seconds[ours].items():
        cells = [f"{own:.3f} s, {memory[ours][length] / 1e6:,.0f} MB"]
        for name in others:
            cells.append("–")
            if length in seconds[name]:
                taken, held = seconds[name][length], memory[name][length]
                times = f"{taken / own:.2f} × time, {held / memory[ours][length]:.2f} × memory"
                cells[-1] = f"{taken:.3f} s, {held / 1e6:,.0f} MB: {times}"
        lines.append((f"{int(length):,}", *cells))
    return (
        "### A layer of attention, forward and back\n\n"
        f"{machine_of(measured)}; `{measured.command}`.\n\n"
        + written(("positions", *seconds), lines)
    )


def searches(figures: Mapping[str, Any]) -> str:
    """A table of decoders: the score of each, its speed as a multiple of the first's, and how many
    of its outputs are the first's.
    """
    heads = ("", figures["metric"], "seconds", "× the first", "the same outputs")
    lines = (
        (
            f"`{name}`",
            f"{found['score']:.2f}",
            f"{median(found['seconds']):.1f}",
            ratio(found["ratio"]),
            f"{found['equal']:,} of {figures['outputs']:,}",
        )
        for name, found in figures["decoders"].items()
    )
    return written(heads, lines)


def ratio(rounds: Sequence[float]) -> str:
    """What `benchmarks.results.spread` gives, to be read."""
    return "{:.2f} ({:.2f}–{:.2f})".format(*rounds)


def scores(figures: Mapping[str, Any]) -> str:
    """A table of variants: of each the mean, and what each seed has."""
    heads = ("", "mean", *(f"seed {seed}" for seed in next(iter(figures["variants"].values()))))
    lines = (
        (f"`{name}`", *(f"{value:.2f}" for value in (fmean(values.values()), *values.values())))
        for name, values in figures["variants"].items()
    )
    return written(heads, lines)


def race(found: Sequence[Measurement]) -> str:
    """How fast we are, and how many times as fast as each other toolkit: the median of rounds, with
    the least and the greatest; behind it the most memory each had.
    """
    machines: dict[str, list[Measurement]] = {}
    for measured in sorted(found, key=lambda one: one.recipe):
        precision = measured.figures["settings"].get("precision", "fp32")
        place = f"{measured.hardware.cpu}, {measured.figures['threads']} threads, {precision}"
        machines.setdefault(place, []).append(measured)
    note = "Seqtrans is so many times as fast as each of them, in the same run"
    return "\n".join(f"{note}; {place}.\n\n{lap(mine)}" for place, mine in machines.items())


def lap(found: Sequence[Measurement]) -> str:
    """The table of one machine."""
    names = sorted({one["name"] for m in found for one in m.figures["contestants"]} - {"seqtrans"})
    lines = []
    for measured in found:
        there = {one["name"]: one for one in measured.figures["contestants"]}
        ours = there["seqtrans"]
        cells = [
            f"{ratio(there[name]['ratio'])}, {there[name]['peak']:,.0f} MB"
            if name in there
            else "–"
            for name in names
        ]
        link = f"[{measured.recipe}](results/{measured.name})"
        lines.append((link, f"{ours['rate']:,.1f}, {ours['peak']:,.0f} MB", *cells))
    heads = ("", f"{found[0].figures['unit']}/s", *(f"× {name}" for name in names))
    return written(heads, lines)


def render(found: Iterable[Row]) -> str:
    """The tables, best rows first."""
    groups: dict[tuple[bool, str, str, str, str, str], list[Row]] = {}
    for row in found:
        name, member = row.family
        fingerprint = "" if member else row.data.fingerprint
        key = (row.synthetic, row.task, name, row.split, row.metric, fingerprint)
        groups.setdefault(key, []).append(row)
    if not groups:
        return "There are no results yet.\n"
    parts: list[str] = []
    part = None
    for key in sorted(groups):
        synthetic, task, data, split, metric, fingerprint = key
        if synthetic != part:
            part = synthetic
            parts.append(
                f"### Synthetic data\n\n{SYNTHETIC_NOTE}\n" if synthetic else "### Real data\n"
            )
        better = f"{groups[key][0].better} is better."
        known = f"Fingerprint of the data {fingerprint[:12]}; {better}"
        parts.append(
            f"#### {data}, {split}: {metric} of {task}\n\n"
            + (f"{known}\n\n" + table(groups[key]) if fingerprint else family(groups[key], better))
        )
    return "\n".join(parts)


def table(group: list[Row]) -> str:
    """The rows of one table."""
    sign = -1 if group[0].better == "higher" else 1
    ordered = sorted(group, key=lambda row: (sign * row.value, row.recipe, row.seed))
    return written(COLUMNS, map(cells, ordered))


def family(group: list[Row], better: str) -> str:
    """The members of a family of data: for each recipe the mean, then a row for each member."""
    recipes: dict[tuple[str, int], dict[str, Row]] = {}
    for row in group:
        recipes.setdefault((row.recipe, row.seed), {})[row.family[1]] = row
    members = sorted({row.family[1] for row in group})
    means = [
        (recipe, str(seed), mean([f"{rows[m].value:.2f}" if m in rows else "" for m in members]))
        for (recipe, seed), rows in sorted(recipes.items())
    ]
    heads = ("recipe", "seed", f"mean of {len(members)}")
    tables = [written(heads, means)]
    tables += [
        written(("data", *COLUMNS), ((m, *cells(rows[m])) for m in members if m in rows))
        for _, rows in sorted(recipes.items())
    ]
    return f"{better[0].upper()}{better[1:]}\n\n" + "\n".join(tables)


def mean(figures: list[str]) -> str:
    """The mean of figures as they are shown, or how many are lacking."""
    lacking = figures.count("")
    if lacking:
        return f"{lacking} lacking"
    return f"{sum(map(float, figures)) / len(figures):.2f}"


def written(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = tuple(heads)
    rows = (heads, ("---",) * len(heads), *lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in rows)


def cells(row: Row) -> tuple[str, ...]:
    """A row as `COLUMNS`."""
    values = (
        f"[{row.recipe}](results/{row.name})",
        str(row.seed),
        f"{row.value:.2f}",
        f"{row.parameters:,}",
        f"{row.updates:,}" + (" (average)" if row.step == "average" else ""),
        duration(row.training.seconds),
        duration(row.seconds.decoding),
        str(row.settings.get("decoder", "")),
        machine_of(row),
        f"`{row.signature}`",
    )
    return tuple(value.replace("|", r"\|") for value in values)


def machine_of(found: Row | Measurement) -> str:
    """The GPUs, or else the processor."""
    hardware = found.hardware
    return ", ".join(hardware.gpus) or f"{hardware.cpu}, {hardware.cores} cores"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
