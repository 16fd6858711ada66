"""``allocator throughputs``: what is known about speed, and models of it from measured steps."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.api import load_throughputs
from allocator.cli.inputs.examples import example_samples
from allocator.cli.options.groups import Commands, option
from allocator.cli.options.shared import (
    AcceleratorOption,
    JsonOption,
    SeedOption,
    check_picture,
    console,
    print_json,
    warn,
)
from allocator.results.shown import text_table
from throughputs.files import write_text
from throughputs.goodput import PARAMETERS, Fit, Samples, fit_model, read_samples
from throughputs.goodput.samples import SAMPLE_COLUMNS

app = Commands()


@app.command("describe")
def describe_command(
    table: Path | None = None,
    /,
    accelerator: AcceleratorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a throughput table: accelerator types, job types, scale factors, speeds.

    Parameters
    ----------
    table : FILE|FOLDER
        Table (JSON, CSV, Parquet, or a folder); the embedded one if omitted.
    """
    known = load_throughputs(table, accelerator=accelerator)
    accelerators = list(known.accelerators)
    rows: list[dict[str, Any]] = []
    for job_type in known.job_types:
        for scale_factor in known.scale_factors_of(job_type):
            rates = known.rates([job_type], [scale_factor], accelerators)[0]
            rows.append(
                {"job_type": job_type, "scale_factor": scale_factor}
                | dict(zip(accelerators, rates.tolist(), strict=True))
            )
    if as_json:
        print_json(
            {
                "source": str(table) if table else "embedded",
                "accelerators": accelerators,
                "job_types": len(known.job_types),
                "scale_factors": list(known.scale_factors),
                "colocated": known.has_colocation,
                "unit": "steps/s",
                "throughputs": rows,
            }
        )
        return
    title = f"{table or 'Embedded table'}: {len(known.job_types)} job types, steps/s of the whole gang"
    caption = "with co-located pairs" if known.has_colocation else "isolated throughputs only"
    cells = ([row["job_type"], row["scale_factor"], *(f"{row[name]:.4g}" for name in accelerators)] for row in rows)
    console().print(text_table(("job type", "GPUs", *accelerators), cells, title=title, caption=caption))


_UNITS = ("s", "s/sample", "s", "s/GPU", "s", "s/GPU", "")
_MEANINGS = (
    "gradients of a micro-batch, whatever its size",
    "and for each sample on a GPU",
    "synchronisation across nodes",
    "and for each GPU beyond the second",
    "synchronisation on one node",
    "and for each GPU beyond the second",
    "overlap of the two: 1 none, 10 almost whole",
)


@app.command("fit")
def fit_command(
    samples: Annotated[
        Path,
        option(
            f"Measured steps (CSV, Parquet) with the columns {', '.join(SAMPLE_COLUMNS)}; the batch size is that "
            "of a micro-batch on one GPU, times are seconds.",
            "FILE",
        ),
    ],
    out: Path | None = None,
    plot: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Fit the throughput model of Pollux to measured steps: how long a step takes by nodes, GPUs and batch size.

    Parameters
    ----------
    out : FILE
        TOML file for the parameters.
    plot : FILE
        Picture of measured and fitted times: .svg, .png or .pdf.
    """
    measured = read_samples(samples)
    if plot is not None:
        check_picture("--plot", plot)
    fit = fit_model(measured)
    if plot is not None:
        drawn = import_module("allocator.cli.inputs.fitted_steps").fitted_steps(fit, measured)
        import_module("allocator.studies.tables").save_picture(drawn, plot)
    if out is not None:
        write_text(out, _as_toml(fit, measured))
    for line in measured.unseen:
        warn(f"{samples}: {line}")
    errors = fit.errors(measured)
    if as_json:
        shown = {"samples": len(measured), "loss": fit.loss, "error": errors}
        print_json(shown | {"parameters": dict(zip(PARAMETERS, fit.parameters, strict=True))})
        return
    caption = (
        f"Error of step times: mean {errors['mean']:.1%}, root mean square {errors['root_mean_square']:.1%}, "
        f"largest {errors['largest']:.1%}"
    )
    rows = zip(PARAMETERS, (f"{value:.4g}" for value in fit.parameters), _UNITS, _MEANINGS, strict=True)
    title, headings = f"{samples}: {len(measured)} samples", ("parameter", "value", "unit", "meaning")
    console().print(text_table(headings, rows, words=(0, 2, 3), title=title, caption=caption))
    for path in (out, plot):
        if path is not None:
            typer.echo(f"written: {path}")


@app.command("example-samples")
def example_command(
    out: Path,
    model: str = "imagenet",
    seed: SeedOption = 0,
) -> None:
    """Write steps as a script might log them, with noise of up to 5 %, to try `allocator throughputs fit` with.

    Parameters
    ----------
    out : FILE
        File to write, as text with commas.
    model
        Embedded profile that they are drawn from.
    """
    text = example_samples(model, seed)
    write_text(out, text)
    typer.echo(f"{out}: {text.count(chr(10)) - 1} steps of {model}, with the columns {', '.join(SAMPLE_COLUMNS)}")


def _as_toml(fit: Fit, samples: Samples) -> str:
    """The parameters as a file of profiles has them (docs/goodput.md)."""
    said = f"# Fitted to {samples.source}: {len(samples)} samples, mean error {fit.errors(samples)['mean']:.1%}.\n"
    return said + "".join(f"{name} = {value!r}\n" for name, value in zip(PARAMETERS, fit.parameters, strict=True))
