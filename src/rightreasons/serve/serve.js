// Progress of running studies, while the page is looked at. Everything is readable without this file.
(function () {
  "use strict";
  var SECONDS = 3;

  function set(place, key, text) {
    var node = place.querySelector("[data-live='" + key + "']");
    if (node && node.textContent !== text) { node.textContent = text; }
  }

  function fill(place, key, rows) {
    var body = place.querySelector("tbody[data-live='" + key + "']");
    if (!body) { return; }
    body.closest("table").hidden = !rows.length;
    body.replaceChildren.apply(body, rows.map(function (cells) {
      var row = document.createElement("tr");
      cells.forEach(function (text) {
        var cell = document.createElement("td"), inner = document.createElement("bdi");
        inner.textContent = text;
        cell.appendChild(inner);
        row.appendChild(cell);
      });
      return row;
    }));
  }

  function show(place, told) {
    var bar = place.querySelector("progress");
    bar.max = told.units;
    bar.value = told.done;
    set(place, "done", String(told.done));
    set(place, "units", String(told.units));
    set(place, "state", told.running_count + " running, " + told.planned + " planned, " + told.failed_count + " failed");
    set(place, "rate", told.seconds_left ? "about " + (told.seconds_left / 60).toFixed(1) + " min left at the rate so far" : "");
    fill(place, "running", told.running.map(function (one) { return [one.unit, one.step, one.since + " s"]; }));
    fill(place, "failed", told.failed.map(function (one) { return [one.unit, one.error]; }));
    return told.done + told.failed_count < told.units;
  }

  function watch(place) {
    var again = function () { setTimeout(function () { watch(place); }, SECONDS * 1000); };
    if (document.hidden) { again(); return; }
    fetch(place.dataset.progress, {cache: "no-store"}).then(function (answer) {
      return answer.ok ? answer.json() : null;
    }).then(function (told) { if (!told || show(place, told)) { again(); } }, again);
  }

  document.querySelectorAll("[data-progress]").forEach(watch);
})();
