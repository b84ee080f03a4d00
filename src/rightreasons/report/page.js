// Switch cases, choose findings, sort and filter galleries, enlarge, show values on hover. Everything is readable without this file.
(function () {
  "use strict";
  var dialog = document.getElementById("enlarged");
  var shown = null;

  function all(selector, root) {
    return Array.prototype.slice.call((root || document).querySelectorAll(selector));
  }

  // ---- cases: one at a time on the screen, all of them on paper

  var cases = all(".case"), switches = all(".case-switch");

  function showCase(id) {
    cases.forEach(function (panel) { panel.classList.toggle("away", panel.id !== id); });
    switches.forEach(function (link) {
      var current = link.getAttribute("href") === "#" + id;
      link.classList.toggle("current", current);
      if (current) { link.setAttribute("aria-current", "true"); } else { link.removeAttribute("aria-current"); }
    });
  }
  if (cases.length > 1) {
    switches.forEach(function (link, number) {
      link.addEventListener("click", function (event) {
        event.preventDefault();
        showCase(link.getAttribute("href").slice(1));
      });
      link.addEventListener("keydown", function (event) {
        var by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!by) { return; }
        event.preventDefault();
        var next = switches[(number + by + switches.length) % switches.length];
        next.focus();
        showCase(next.getAttribute("href").slice(1));
      });
    });
    showCase(cases[0].id);
  }

  // ---- findings: by model, attribute, row and verdict

  var chooser = document.querySelector(".choose");

  function choose() {
    var wanted = all("select", chooser), count = 0;
    all(".chosen, .to-finding").forEach(function (entry) {
      entry.hidden = wanted.some(function (select) {
        return select.value !== "*" && select.value !== "=" + entry.dataset[select.dataset.key];
      });
      count += !entry.hidden && entry.tagName === "LI" && entry.classList.contains("chosen") ? 1 : 0;
    });
    chooser.querySelector(".count").textContent = count + (count === 1 ? " finding" : " findings");
  }
  function chooseAll() {
    all("select", chooser).forEach(function (select) { select.value = "*"; });
    choose();
  }
  if (chooser) {
    chooser.hidden = false;
    chooser.addEventListener("change", choose);
  }

  // ---- commands to copy

  all(".copy").forEach(function (button) {
    var command = button.parentNode.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", function () {
      getSelection().selectAllChildren(command); // what a browser that forbids more still leaves to Ctrl+C
      if (navigator.clipboard) {
        navigator.clipboard.writeText(command.textContent).then(function () { button.textContent = "Copied"; }, function () {});
      }
    });
  });

  // ---- galleries

  function tilesOf(gallery) {
    return all(".tiles > figure", gallery);
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

  all(".gallery").forEach(function (gallery) {
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

  // ---- enlarging: a picture of a gallery, or a chart

  function copies(nodes) {
    return Array.prototype.map.call(nodes, function (node) { return node.cloneNode(true); });
  }

  function open(picture, text, of) {
    var target = dialog.querySelector(".enlarged-picture"), words = dialog.querySelector(".enlarged-text");
    target.replaceChildren(picture);
    words.replaceChildren.apply(words, text);
    dialog.classList.toggle("of-chart", of.classList.contains("exhibit"));
    shown = of;
    if (!dialog.open) { dialog.showModal(); }
  }

  function enlarge(tile) {
    open(tile.querySelector("img").cloneNode(true), copies(tile.querySelector("figcaption").childNodes), tile);
  }

  all("figure.exhibit").forEach(function (figure) {
    var chart = figure.querySelector("svg.chart"), title = figure.querySelector("h4");
    if (!chart || !title || !dialog.showModal) { return; }
    var button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    button.textContent = "enlarge";
    button.setAttribute("aria-label", "Enlarge: " + title.textContent);
    button.addEventListener("click", function () {
      var caption = figure.querySelector("figcaption");
      open(chart.cloneNode(true), caption ? copies(caption.childNodes) : [], figure);
    });
    title.insertAdjacentElement("afterend", button);
  });

  function step(by) {
    var gallery = shown && shown.closest(".gallery");
    if (!gallery) { return; }
    var tiles = tilesOf(gallery).filter(function (tile) { return !tile.hidden; });
    enlarge(tiles[(tiles.indexOf(shown) + by + tiles.length) % tiles.length]);
  }

  dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
  dialog.addEventListener("close", function () {
    if (shown) { (shown.querySelector("button.enlarge") || shown.querySelector("button")).focus(); }
    shown = null;
  });
  dialog.addEventListener("keydown", function (event) {
    if (event.key === "ArrowRight") { step(1); }
    if (event.key === "ArrowLeft") { step(-1); }
  });

  // ---- values on hover: at once, and beside the pointer

  var hover = document.getElementById("hover");

  document.addEventListener("pointermove", function (event) {
    var mark = event.target.closest && event.target.closest("svg.chart [data-value], svg.chart :has(> title)");
    if (mark && !mark.dataset.value) {
      var title = mark.querySelector(":scope > title");
      mark.dataset.value = title.textContent;
      title.remove(); // or the browser shows it a second time
    }
    hover.hidden = !mark;
    if (mark) {
      hover.textContent = mark.dataset.value;
      hover.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - hover.offsetWidth - 8)) + "px";
      hover.style.top = Math.max(4, event.clientY - hover.offsetHeight - 12) + "px";
    }
  });

  // ---- a link into a folded section or an unchosen finding shows it; printing unfolds all

  function unfold() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) { return; }
    if (target.classList.contains("case") && cases.length > 1) { showCase(target.id); }
    var entry = target.closest(".chosen") || target;
    if (entry.hidden && chooser) { chooseAll(); }
    for (var fold = target; fold; fold = fold.parentElement) {
      if (fold.tagName === "DETAILS") { fold.open = true; }
    }
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a[href^='#']");
    if (link && !link.classList.contains("case-switch") && link.getAttribute("href") === location.hash) { unfold(); }
  });
  unfold();

  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = all("details:not([open]):not(.numbers)");
    folded.forEach(function (details) { details.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (details) { details.open = false; });
  });
})();
