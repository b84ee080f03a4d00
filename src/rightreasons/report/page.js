// Galleries: sort, filter, enlarge. Everything is readable without this file.
(function () {
  "use strict";
  var dialog = document.getElementById("enlarged");
  var shown = null;

  function tilesOf(gallery) {
    return Array.prototype.slice.call(gallery.querySelectorAll(".tiles > figure"));
  }

  function arrange(gallery) {
    var sort = gallery.querySelector(".sort"), filter = gallery.querySelector(".filter");
    var by = sort ? sort.value : "order", wanted = filter ? filter.value : "*", count = 0;
    var key = by.replace(/^[+-]/, ""), sign = by.charAt(0) === "-" ? -1 : 1;
    var tiles = tilesOf(gallery);
    tiles.sort(function (a, b) {
      var x = parseFloat(a.dataset[key]), y = parseFloat(b.dataset[key]);
      if (isNaN(x) || isNaN(y)) { return (isNaN(x) ? 1 : 0) - (isNaN(y) ? 1 : 0); }
      return sign * (x - y) || a.dataset.order - b.dataset.order;
    });
    tiles.forEach(function (tile) {
      tile.hidden = wanted !== "*" && wanted !== "=" + tile.dataset.group;
      count += tile.hidden ? 0 : 1;
      tile.parentNode.appendChild(tile);
    });
    var counter = gallery.querySelector(".count");
    if (counter) { counter.textContent = count + (count === 1 ? " picture" : " pictures"); }
  }

  function enlarge(tile) {
    var source = tile.querySelector("img"), target = dialog.querySelector("img");
    var text = dialog.querySelector(".enlarged-text");
    target.src = source.src;
    target.alt = source.alt;
    text.replaceChildren.apply(text, Array.prototype.map.call(tile.querySelector("figcaption").childNodes, function (node) {
      return node.cloneNode(true);
    }));
    shown = tile;
    if (!dialog.open) { dialog.showModal(); }
  }

  function step(by) {
    if (!shown) { return; }
    var tiles = tilesOf(shown.closest(".gallery")).filter(function (tile) { return !tile.hidden; });
    var at = tiles.indexOf(shown);
    enlarge(tiles[(at + by + tiles.length) % tiles.length]);
  }

  document.querySelectorAll(".gallery").forEach(function (gallery) {
    var controls = gallery.querySelector(".controls");
    if (controls) {
      controls.hidden = false;
      controls.addEventListener("change", function () { arrange(gallery); });
    }
    gallery.addEventListener("click", function (event) {
      var button = event.target.closest("figure > button");
      if (button && dialog.showModal) { enlarge(button.parentNode); }
    });
  });

  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
  dialog.addEventListener("close", function () {
    if (shown) { shown.querySelector("button").focus(); }
    shown = null;
  });
  dialog.addEventListener("keydown", function (event) {
    if (event.key === "ArrowRight") { step(1); }
    if (event.key === "ArrowLeft") { step(-1); }
  });

  // A link into a folded section unfolds it; printing unfolds all.
  function unfold() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") { target.open = true; }
  }
  window.addEventListener("hashchange", unfold);
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) { unfold(); }
  });
  unfold();

  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.slice.call(document.querySelectorAll("details:not([open]):not(.numbers)"));
    folded.forEach(function (details) { details.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (details) { details.open = false; });
  });
})();
