// Evaluated in a report's page: gives one panel of a plot as SVG text and as PNG in base64.
(async (key, variant, index, title, width, height) => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const panel = data.plots[key].variants[variant][index];
  const axis = { gridcolor: "#e4e8ec", automargin: true };
  const template = { layout: {
    font: { color: "#1c2128", family: "sans-serif", size: 16 },
    paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", xaxis: axis, yaxis: axis,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    margin: { l: 70, r: 20, t: 50, b: 60 },
  } };
  const traces = panel.figure.data.map((trace) => trace.type !== "heatmap" ? trace : {
    ...trace, colorscale: [[0, "#eef1f4"], [1, panel.colour || "#1b5299"]],
  });
  const head = title ? { title: { text: title, font: { size: 18 } } } : {};
  const layout = { ...panel.figure.layout, ...head, template, width, height };
  const figure = { data: traces, layout };
  const svg = await Plotly.toImage(figure, { format: "svg", width, height });
  const png = await Plotly.toImage(figure, { format: "png", width, height, scale: 2 });
  const content = (url) => url.slice(url.indexOf(",") + 1);
  return [decodeURIComponent(content(svg)), content(png)];
})
