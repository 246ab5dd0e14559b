"use strict";
(() => {
  const page = document.documentElement;
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("report-data").textContent);
  const colour = (name) => getComputedStyle(page).getPropertyValue(`--${name}`).trim();

  // What went wrong is kept where a test finds it.
  const failed = (what) => { page.dataset.errors = (page.dataset.errors ?? "") + `${what}\n`; };
  window.addEventListener("error", (event) => failed(event.message));
  window.addEventListener("unhandledrejection", (event) => failed(event.reason));

  // Plots.

  const template = () => {
    const axis = {
      gridcolor: colour("grid"), linecolor: colour("line"), zerolinecolor: colour("line"),
      automargin: true, title: { standoff: 8 },
    };
    return { layout: {
      font: { color: colour("text"), family: "system-ui, sans-serif", size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis, yaxis: axis, hovermode: "closest",
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("text") } },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      margin: { l: 56, r: 12, t: 12, b: 44 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("text") },
    } };
  };
  const config = (name) => ({
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: name },
  });
  const drawPanel = (chart, panel, name) => {
    const traces = panel.figure.data.map((trace) => trace.type !== "heatmap" ? trace : {
      ...trace, colorscale: [[0, colour("cell")], [1, panel.colour || colour("load10")]],
    });
    const layout = { ...panel.figure.layout, template: template() };
    // Readable also across lines.
    layout.annotations = layout.annotations?.map((one) => ({ ...one, bgcolor: `${colour("page")}99` }));
    return Plotly.react(chart, traces, layout, config(name));
  };
  const drawPlot = (section) => {
    const plot = data.plots[section.dataset.plot];
    const select = section.querySelector("select");
    const panels = plot.variants[select ? select.value : plot.default];
    const box = section.querySelector(".panels");
    box.querySelectorAll(".chart").forEach((chart) => Plotly.purge(chart));
    box.replaceChildren();
    box.classList.toggle("single", panels.length === 1);
    // All of them are put in place before one is drawn: they share the width.
    const charts = panels.map((panel) => {
      const holder = document.createElement("figure");
      const chart = document.createElement("div");
      chart.className = "chart";
      if (panel.title) {
        const caption = document.createElement("figcaption");
        if (panel.colour) {
          caption.append(document.createElement("i"));
          caption.firstChild.style.background = panel.colour;
        }
        caption.append(panel.title);
        holder.append(caption);
      }
      if (panel.figure.layout.height) chart.style.height = `${panel.figure.layout.height}px`;
      holder.append(chart);
      box.append(holder);
      return [chart, panel];
    });
    return Promise.all(charts.map((pair) => drawPanel(...pair, section.dataset.plot)));
  };
  const sections = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => Promise.all(sections.map(drawPlot)).catch(failed);
  sections.forEach((section) => section.querySelector("select")
    ?.addEventListener("change", () => drawPlot(section).catch(failed)));

  // Light and dark.

  const themeButton = find("theme");
  const nameTheme = () => { themeButton.textContent = page.dataset.theme === "dark" ? "Light" : "Dark"; };
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => document.dispatchEvent(new Event("switch-theme")));
  document.addEventListener("themed", () => { nameTheme(); drawAll(); });
  nameTheme();

  // The fabric. Frame 0 is the whole run; frame k is the time between edges k - 1 and k.

  const { edges, schemes } = data.frames;
  const maps = [...document.querySelectorAll(".fabric")].map((svg) => (
    [...svg.querySelectorAll(".load")].map((line) => [line, line.dataset.port])));
  const slider = find("time");
  const bucket = (load) => {
    if (!(load > 0)) return 0;
    if (load <= 1) return Math.ceil(load * 10);
    return load <= 1.25 ? 11 : load <= 1.5 ? 12 : 13;
  };
  const loadOf = (scheme, port, frame) => (
    frame ? scheme.load[port]?.[frame - 1] ?? 0 : scheme.ports.offered[port]);
  const show = (frame) => {
    maps.forEach((lines, i) => lines.forEach(([line, port]) => {
      line.setAttribute("class", `load load${bucket(loadOf(schemes[i], port, frame))}`);
    }));
    find("moment").textContent = frame
      ? `${edges[frame - 1].toFixed(2)} to ${edges[frame].toFixed(2)} s` : "whole run";
  };

  const prefixed = (value, unit) => {
    const step = value >= 1e9 ? [1e9, "G"] : value >= 1e6 ? [1e6, "M"] : value >= 1e3 ? [1e3, "k"] : [1, ""];
    return `${+(value / step[0]).toPrecision(4)} ${step[1]}${unit}`;
  };
  const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;
  const describe = (scheme, port, frame) => {
    const { ports } = scheme;
    const lines = [ports.name[port], `asked for ${percent(loadOf(scheme, port, frame))} of ${prefixed(ports.rate[port], "bit/s")}`];
    const queue = frame ? scheme.depth[port]?.[frame - 1] ?? 0 : ports.high_water?.[port];
    if (!frame && ports.carried) lines.push(`carried ${percent(ports.carried[port])}`);
    if (queue !== undefined) {
      const wait = (queue * 8e3 / ports.rate[port]).toPrecision(3);
      lines.push(`${frame ? "queue" : "deepest queue"} ${prefixed(queue, "B")} (${+wait} ms)`);
    }
    if (!frame && ports.dropped) lines.push(`dropped ${ports.dropped[port].toLocaleString("en")} packets`);
    return lines.join("\n");
  };
  const tip = find("tip");
  document.querySelectorAll(".fabric").forEach((svg, i) => {
    svg.addEventListener("pointermove", (event) => {
      const port = event.target.classList.contains("hit") ? event.target.dataset.port : undefined;
      tip.hidden = port === undefined;
      if (tip.hidden) return;
      tip.textContent = describe(schemes[i], port, Number(slider.value));
      const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(left, 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  });

  if (edges.length > 1 && slider) {
    const play = find("play");
    let timer = null;
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ Play"; };
    document.querySelector(".controls").hidden = false;
    slider.max = edges.length - 1;
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    play.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (slider.value === slider.max) slider.value = 0;
      play.textContent = "❚❚ Pause";
      timer = setInterval(() => {
        slider.value = Number(slider.value) + 1;
        show(Number(slider.value));
        if (slider.value === slider.max) stop();
      }, 120);
    });
  }

  drawAll().then(() => { page.dataset.ready = "yes"; });
})();
