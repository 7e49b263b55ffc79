// The plots of the plane: each function turns a part or a run into traces and a layout.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

function frame(more) {
  const axis = {
    gridcolor: ink("grid"), zerolinecolor: ink("grid"), linecolor: ink("line"), automargin: true,
    // On a touch screen a drag scrolls the page.
    fixedrange: coarse.matches, title: { standoff: 8 },
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    font: { family: FONT, size: 12, color: ink("ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 12, t: 12, b: 8 }, showlegend: false, hovermode: "closest",
    hoverlabel: {
      bgcolor: ink("surface"), bordercolor: ink("line"), namelength: -1,
      font: { family: FONT, size: 12, color: ink("ink") },
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

function titled(text) {
  return { text, standoff: 8 };
}

function shownRuns(part) {
  const chips = document.querySelectorAll(`#${part.id} > .runs .chip`);
  const hidden = new Set([...chips].filter((chip) => !pressed(chip)).map((chip) => chip.dataset.run));
  return part.runs.filter((run) => !hidden.has(run.id));
}

function bars(part) {
  const settings = [...part.bars].reverse();
  const data = settings.flatMap((each, place) => {
    const deviation = each.deviation === null ? "" : `\u00a0±\u00a0${each.deviation.toFixed(2)}`;
    const text = `${each.mean.toFixed(2)}${deviation}\u00a0%`;
    const bar = {
      type: "bar", orientation: "h", y: [place], x: [each.mean - part.barsFrom], base: part.barsFrom,
      marker: { color: tone(each.colour) }, width: 0.6, hoverinfo: "text",
      hovertext: `${plain(each.name)}<br>${text}`,
      error_x: {
        type: "data", array: [each.deviation || 0], visible: each.deviation !== null,
        color: ink("ink"), thickness: 1.5,
      },
    };
    const dots = {
      type: "scatter", mode: "markers", y: each.values.map(() => place), x: each.values,
      marker: { color: ink("ink"), size: 5, opacity: 0.7 }, hovertemplate: "%{x:.2f}\u00a0%<extra></extra>",
    };
    return each.values.length > 1 ? [bar, dots] : [bar];
  });
  const names = settings.map((each) => plain(shorten(each.name, narrow() ? 16 : 40)));
  return {
    data, height: 70 + 44 * settings.length,
    layout: frame({
      xaxis: { title: titled("test accuracy, %"), range: reach(part) },
      yaxis: { tickvals: settings.map((_, place) => place), ticktext: names, showgrid: false, fixedrange: true },
      bargap: 0.3,
    }),
  };
}

function reach(part) {
  const ends = part.bars.map((each) => Math.max(...each.values, each.mean + (each.deviation || 0)));
  const most = Math.max(...ends);
  return [part.barsFrom, most + 0.04 * (most - part.barsFrom || 1)];
}

function curves(part) {
  const kind = document.querySelector(`input[name="${part.id}-curve"]:checked`).value;
  const data = shownRuns(part).flatMap((run) => {
    const { epoch, [kind]: values } = run.history;
    const place = epoch.indexOf(run.chosen);
    const percent = kind === "val_accuracy" ? ":.2f}\u00a0%" : ":.4f}";
    const label = `${plain(run.name)}<br>epoch %{x}: %{y${percent}<extra></extra>`;
    return [
      {
        type: "scatter", mode: epoch.length > 1 ? "lines" : "markers", x: epoch, y: values,
        name: plain(run.name), hovertemplate: label,
        line: { color: tone(run.colour), width: 2, dash: DASHES[run.turn % DASHES.length] },
      },
      {
        type: "scatter", mode: "markers", x: [run.chosen], y: [values[place]], hovertemplate: label,
        marker: { color: tone(run.colour), size: 11, line: { color: ink("surface"), width: 2 } },
      },
    ];
  });
  const title = { val_accuracy: "validation accuracy, %", val_loss: "validation loss", train_loss: "training loss" };
  const most = Math.max(...part.runs.map((run) => run.history.epoch.length));
  const xaxis = { title: titled("epoch"), tick0: 1, dtick: most <= 12 ? 1 : undefined };
  return { data, layout: frame({ xaxis, yaxis: { title: titled(title[kind]) } }) };
}

function confusion(part, run) {
  const names = part.classes;
  const counts = countsOf(part, run);
  const few = names.length <= (narrow() ? 12 : 24);
  const ticks = few
    ? { tickvals: names.map((_, i) => i), ticktext: names.map((name) => plain(shorten(name, 12))) }
    : { showticklabels: false };
  // Turned the other way, the last name has no room.
  const long = few && names.some((name) => name.length > 3);
  const written = names.length <= (narrow() ? 10 : 20);
  return {
    data: [{
      // The square root shows small shares too.
      type: "heatmap", z: counts.map((row) => row.map((count) => Math.sqrt(count / total(row)))),
      zmin: 0, zmax: 1, colorscale: [[0, ink("low")], [1, ink("high")]], showscale: false,
      hoverinfo: "none", xgap: few ? 2 : 0, ygap: few ? 2 : 0,
      text: written ? counts.map((row) => row.map((count) => count || "")) : undefined,
      texttemplate: written ? "%{text}" : undefined, textfont: { size: names.length > 12 ? 9 : 12 },
    }],
    layout: frame({
      xaxis: { ...ticks, title: titled("predicted"), showgrid: false, zeroline: false, fixedrange: true, tickangle: long ? -45 : 0 },
      yaxis: { ...ticks, title: titled("true"), autorange: "reversed", showgrid: false, zeroline: false, fixedrange: true },
    }),
  };
}

function countsOf(part, run) {
  if (run.counts) return run.counts;
  const size = part.classes.length;
  run.counts = part.classes.map(() => new Array(size).fill(0));
  const counts = unpack(run.confusion.counts, Uint32Array);
  unpack(run.confusion.cells, Uint32Array).forEach((cell, place) => {
    run.counts[Math.floor(cell / size)][cell % size] = counts[place];
  });
  return run.counts;
}

function total(row) {
  return Math.max(1, row.reduce((a, b) => a + b, 0));
}

function sayCell(part, run, [i, j]) {
  const row = countsOf(part, run)[i];
  return `${part.classes[i]} taken for ${part.classes[j]}\n${row[j]} of ${total(row)} images`;
}

function reliability(part, run) {
  const series = [["before", "before the temperature", "square-open"], ["after", "after the temperature", "circle"]];
  const data = series.flatMap(([key, name, symbol]) => {
    const { colour, line, fill } = look(run, key === "after");
    const full = run.reliability[key].filter((bin) => bin[2]);
    return [
      {
        type: "scatter", mode: "lines+markers", name, x: full.map((bin) => 100 * bin[3]),
        y: full.map((bin) => 100 * bin[4]), customdata: full.map((bin) => bin[2]), cliponaxis: false,
        line, marker: { symbol, color: colour, size: 7 },
        hovertemplate: "confidence %{x:.0f}\u00a0%, right %{y:.0f}\u00a0%<br>%{customdata} images<extra></extra>",
      },
      {
        type: "bar", yaxis: "y2", showlegend: false,
        marker: { color: fill, line: { color: colour, width: 1 } },
        x: full.map((bin) => 50 * (bin[0] + bin[1])), y: full.map((bin) => bin[2]),
        hovertemplate: "%{y} images<extra></extra>",
      },
    ];
  });
  data.unshift({
    type: "scatter", mode: "lines", x: [0, 100], y: [0, 100], showlegend: false, hoverinfo: "skip",
    line: { color: ink("muted"), dash: "dash", width: 1 },
  });
  const layout = frame({
    showlegend: true, barmode: "group", bargap: 0.15,
    xaxis: { title: titled("confidence, %"), range: [0, 100], anchor: "y2" },
    yaxis: { title: titled("right, %"), range: [0, 100], domain: [0.3, 1] },
  });
  layout.yaxis2 = { ...layout.yaxis, domain: [0, 0.22], range: undefined, title: titled("images"), nticks: 3 };
  return { data, layout };
}

function angles(part, run) {
  const series = [["true", "to its own class"], ["nearest_wrong", "to the nearest wrong class"]];
  const data = series.map(([key, name]) => {
    const { colour, fill } = look(run, key === "true");
    const counts = run.angles[key];
    const width = 180 / counts.length;
    // No line along the axis where there is nothing.
    const places = [...counts.keys()].filter((i) => counts[i - 1] || counts[i] || counts[i + 1]);
    return {
      type: "scatter", mode: "lines", name, x: places.map((i) => (i + 0.5) * width), y: places.map((i) => counts[i]),
      line: { color: colour, width: 1.5, shape: "hvh" }, fill: "tozeroy", fillcolor: fill,
      hovertemplate: "%{x:.0f}°: %{y} images<extra></extra>",
    };
  });
  return {
    data,
    layout: frame({
      showlegend: true,
      xaxis: { title: titled("angle θ to the signature, degrees"), range: [0, 180], dtick: 30 },
      yaxis: { title: titled("images") },
    }),
  };
}

function spectrum(part) {
  const data = shownRuns(part).filter((run) => run.spectrum.length).map((run) => ({
    type: "scatter", mode: "lines", x: run.spectrum.map((_, i) => i + 1),
    y: run.spectrum.map((value) => (value > 0 ? value : null)),
    line: { color: tone(run.colour), width: 2, dash: DASHES[run.turn % DASHES.length] },
    hovertemplate: `${plain(run.name)}<br>direction %{x}: %{y:.3g}<extra></extra>`,
  }));
  return {
    data,
    layout: frame({
      xaxis: { title: titled("direction, by falling variance") },
      yaxis: { title: titled("variance"), type: "log", exponentformat: "power", dtick: 1 },
    }),
  };
}

// Of two things about one run, the first is filled in the run's colour, the other hollow and grey:
// colours stand for runs, and no eye needs them to tell the two apart.
function look(run, first) {
  const colour = first ? tone(run.colour) : ink("muted");
  if (first) return { colour, fill: colour + "99", line: { color: colour, width: 2 } };
  return { colour, fill: "rgba(0,0,0,0)", line: { color: colour, width: 2, dash: "dot" } };
}

function narrow() {
  return innerWidth < 640;
}
