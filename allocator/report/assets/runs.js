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
    return { from, to, rounds, job };
  });
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
      for (let bar = countUpTo(lane.from, seconds) - 1; bar >= 0 && bar > countUpTo(lane.from, seconds) - 3; bar -= 1) {
        if (lane.job[bar] === job && lane.to[bar] > seconds) {
          gpus += 1;
          kind = run.accelerators[position];
          break;
        }
      }
    }
    first += count;
  });
  if (!run.lanes.length || (known(run.until) && seconds >= run.until)) return "there";
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
  return `${status} at ${hours(done)} after ${hours(done - arrival)}${parts}`;
}
