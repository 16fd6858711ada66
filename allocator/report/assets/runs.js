// What is known of single runs, read from the page when a run is looked at for the first time.
function detailOf(index) {
  const run = data.runs[index];
  if (!run.read) {
    Object.assign(run, JSON.parse(byId(`run-${index}`).textContent), { read: true });
    run.lanes = lanesOf(run);
  }
  return run;
}

// Bars of each GPU as columns. They come as [round since the last bar's first, rounds, job, ...]; times follow from the
// rounds and completions.
function lanesOf(run) {
  return run.bars.map((flat) => {
    const count = flat.length / 3;
    const [from, to, rounds, job] = [0, 1, 2, 3].map(() => new Int32Array(count));
    for (let bar = 0, first = 0; bar < count; bar += 1) {
      first += flat[3 * bar];
      rounds[bar] = flat[3 * bar + 1];
      job[bar] = flat[3 * bar + 2];
      const ends = run.roundEnd[Math.min(first + rounds[bar] - 1, run.roundEnd.length - 1)];
      const done = run.completion[job[bar]];
      from[bar] = run.roundStart[first];
      to[bar] = Math.min(known(done) && done > from[bar] ? done : ends, ends, run.until ?? ends);
    }
    return { from, to, rounds, job, pieces: stacked(from, to, job, traceOf(run).gpus) };
  });
}

// The bars of a GPU as what is drawn: each has as much of the height as its job has of the GPU, on those that began
// before it and are still there, and a new piece where these change. Jobs that have the GPU twice over, as pairs do,
// divide the height. `reach` is how far the pieces up to each one last.
function stacked(from, to, job, gpus) {
  const pieces = [];
  let active = [];
  const settle = (time) => {
    const whole = Math.max(1000, active.reduce((sum, { share }) => sum + share, 0));
    let low = 0;
    for (const each of active) {
      const [foot, height] = [low / whole, each.share / whole];
      low += each.share;
      if (each.piece?.low === foot && each.piece.height === height) continue;
      if (each.piece) each.piece.to = time;
      each.piece = { bar: each.bar, from: time, to: to[each.bar], low: foot, height };
      pieces.push(each.piece);
    }
  };
  const leaveUntil = (time) => {
    while (active.length) {
      const next = Math.min(...active.map(({ bar }) => to[bar]));
      if (next > time) return;
      active = active.filter(({ bar }) => to[bar] > next);
      settle(next);
    }
  };
  for (let bar = 0; bar < from.length; bar += 1) {
    leaveUntil(from[bar]);
    if (to[bar] <= from[bar]) continue;
    active.push({ bar, share: Math.round(1000 * Math.min(gpus[job[bar]], 1)) });
    settle(from[bar]);
  }
  leaveUntil(Infinity);
  const kept = pieces.filter((piece) => piece.to > piece.from);
  let last = -Infinity;
  const reach = kept.map((piece) => (last = Math.max(last, piece.to)));
  return { all: kept, from: kept.map((piece) => piece.from), reach };
}

// The pieces of a GPU that are there at some time between two.
function piecesWithin({ all, from, reach }, first, last) {
  return all.slice(countUpTo(reach, first), countUpTo(from, last)).filter((piece) => piece.to > first);
}

// When a run has placed so many bars; the whole of it where there are fewer.
function timeOfBars(run, most) {
  const starts = run.lanes.flatMap((lane) => [...lane.from]).sort((a, b) => a - b);
  return starts.length > most * 1.5 ? starts[most] : run.busyUntil;
}

const traceOf = (run) => data.traces[run.trace];
const jobAt = (run) => (view.has("job") ? traceOf(run).id.indexOf(view.get("job")) : -1);

// Where a job is at a time, in words.
function whereabouts(run, job, seconds) {
  const [arrival, done] = [traceOf(run).arrival[job], run.completion[job]];
  if (seconds < arrival) return "not there yet";
  if (known(done) && seconds >= done) return `done after ${hours(done - arrival)}`;
  let [gpus, kind, first] = [0, "", 0];
  run.capacity.forEach((count, position) => {
    for (let gpu = first; gpu < first + count && run.lanes.length; gpu += 1) {
      const lane = run.lanes[gpu];
      if (piecesWithin(lane.pieces, seconds, seconds).some(({ bar }) => lane.job[bar] === job)) {
        gpus += 1;
        kind = run.accelerators[position];
      }
    }
    first += count;
  });
  if (!run.lanes.length || (known(run.until) && seconds >= run.until)) return "there";
  const asked = traceOf(run).gpus[job];
  if (gpus && asked < 1) return `on ${asked} of a ${kind} GPU`;
  return gpus ? `on ${gpus} ${kind} ${gpus === 1 ? "GPU" : "GPUs"}` : "waiting";
}

// The stretch of time of a job's life in some runs of its trace, with a margin.
function lifeOf(job, runs) {
  const arrival = traceOf(runs[0]).arrival[job];
  const ends = runs.map((run) => run.completion[job]).filter(known);
  const end = Math.max(...ends, arrival + 3600);
  const margin = 0.1 * (end - arrival);
  return { from: Math.max(Math.floor(arrival - margin), 0), to: Math.ceil(end + margin) };
}

// What became of a job, in words.
function outcome(run, job) {
  const [arrival, done, running] = [traceOf(run).arrival[job], run.completion[job], run.running?.[job]];
  const status = run.statuses[run.status[job]];
  if (!known(done)) return status;
  const parts = known(running) ? ` (${hours(Math.max(done - arrival - running, 0))} waiting)` : "";
  return `${status} at ${when(done)} after ${hours(done - arrival)}${parts}`;
}
