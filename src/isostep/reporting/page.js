// What every page can do: switch arms, sort tables, read values off plots, page and filter items, copy text.
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const one = (key) => document.getElementById(key);

  // Arms, switched on and off everywhere at once.
  const off = new Set();
  for (const box of all("input[data-toggle]")) {
    box.checked = true;
    box.addEventListener("change", () => {
      off[box.checked ? "delete" : "add"](box.dataset.toggle);
      for (const part of all(`[data-arm="${box.dataset.toggle}"]`)) part.classList.toggle("off", !box.checked);
    });
  }

  // Tables.
  const amount = (text) => {
    const found = text.replace("< ", "").match(/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?/);
    return found ? Number(found[0]) : NaN;
  };
  for (const button of all("th button")) {
    button.addEventListener("click", () => {
      const cell = button.parentElement, table = cell.closest("table"), body = table.tBodies[0];
      const up = cell.ariaSort !== "ascending";
      for (const other of all("thead th", table)) other.ariaSort = "none";
      cell.ariaSort = up ? "ascending" : "descending";
      const rows = [...body.rows].map((row) => [row, row.cells[cell.cellIndex].textContent]);
      const numbers = rows.map(([, text]) => amount(text)), numeric = numbers.some((value) => !isNaN(value));
      const order = (a, b) => {
        if (!numeric) return a[1].localeCompare(b[1]);
        const [x, y] = [amount(a[1]), amount(b[1])];
        return isNaN(x) || isNaN(y) ? (isNaN(x) - isNaN(y)) * (up ? 1 : -1) : x - y;  // empty cells come last
      };
      rows.sort((a, b) => (up ? order(a, b) : order(b, a)));
      body.append(...rows.map(([row]) => row));
    });
  }

  // Values of curves: the nearest place along x, one line for each curve that is shown.
  const tip = one("tip");
  const short = (value) => String(Number(value.toPrecision(3)));
  for (const plot of all("svg.plot")) {
    const [x0, x1, logX, y0, y1, logY] = plot.dataset.scale.split(" ").map(Number);
    const value = (share, low, high, log) => (log ? 10 ** (low + share * (high - low)) : low + share * (high - low));
    const curves = all("polyline", plot).map((line) => ({
      line, text: line.dataset.text?.split("|"), name: line.dataset.name,
      points: line.getAttribute("points").split(" ").map((pair) => pair.split(",").map((v) => Number(v) / 1000)),
    }));
    const inner = plot.querySelector(".lines"), box = () => inner.getBoundingClientRect();
    const hair = document.createElementNS("http://www.w3.org/2000/svg", "line");
    hair.setAttribute("class", "hair off");
    hair.setAttribute("y1", 0);
    hair.setAttribute("y2", inner.getAttribute("height"));
    plot.append(hair);
    let at = null;

    function show(share) {
      const seen = curves.filter((curve) => !curve.line.classList.contains("off") && curve.points.length);
      if (!seen.length) return hide();
      const nearest = (curve) => curve.points.reduce((best, p, k) =>
        (Math.abs(p[0] - share) < Math.abs(curve.points[best][0] - share) ? k : best), 0);
      const found = seen.map((curve) => [curve, nearest(curve)]);
      const [first, k] = found.reduce((best, next) =>
        (Math.abs(next[0].points[next[1]][0] - share) < Math.abs(best[0].points[best[1]][0] - share) ? next : best));
      at = first.points[k][0];
      for (const end of ["x1", "x2"]) hair.setAttribute(end, `${100 * at}%`);
      hair.classList.remove("off");
      const lines = [`${plot.dataset.x.replace(/ \(.*/, "")} ${short(value(at, x0, x1, logX))}`];
      for (const [curve, n] of found) {
        const y = curve.text?.[n] ?? short(value(1 - curve.points[n][1], y0, y1, logY));
        lines.push(`${curve.name}: ${y}`);
      }
      tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
      tip.hidden = false;
      const frame = box(), left = frame.left + at * frame.width;
      const aside = left + 14 + tip.offsetWidth > innerWidth ? left - 14 - tip.offsetWidth : left + 14;
      tip.style.left = `${Math.max(4, aside)}px`;
      tip.style.top = `${Math.max(4, Math.min(frame.top + 6, innerHeight - tip.offsetHeight - 4))}px`;
    }
    function hide() {
      tip.hidden = true;
      hair.classList.add("off");
    }
    plot.addEventListener("pointermove", (e) => { const frame = box(); show((e.clientX - frame.left) / frame.width); });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(at ?? 0); });
    plot.addEventListener("keydown", (e) => {
      if (e.key === "Escape") return hide();
      const way = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!way) return;
      e.preventDefault();
      const places = curves.filter((c) => !c.line.classList.contains("off")).flatMap((c) => c.points.map((p) => p[0]));
      const next = places.filter((x) => (x - (at ?? -1)) * way > 1e-6).sort((a, b) => (a - b) * way)[0];
      if (next !== undefined) show(next);
    });
  }

  // Items: pages and a filter.
  const items = one("figure-generated");
  if (items) {
    const size = Number(items.dataset.page), grids = all(".grid", items);
    const [text, kind, said] = [one("items-text"), one("items-kind"), one("items-said")];
    const [back, next] = [one("items-back"), one("items-next")];
    let page = 0;
    function layItems() {
      const found = grids.map((grid) => all(".tile", grid).filter((tile) => {
        const wanted = !kind?.value || (kind.value === "fault") === tile.classList.contains("faulty");
        return wanted && tile.textContent.toLowerCase().includes(text.value.trim().toLowerCase());
      }));
      const most = Math.max(...found.map((tiles) => tiles.length)), pages = Math.max(1, Math.ceil(most / size));
      page = Math.max(0, Math.min(page, pages - 1));
      grids.forEach((grid, k) => {
        const seen = new Set(found[k].slice(page * size, (page + 1) * size));
        for (const tile of all(".tile", grid)) tile.hidden = !seen.has(tile);
      });
      said.textContent = most ? ` page ${page + 1} of ${pages} ` : " none found ";
      back.disabled = page === 0;
      next.disabled = page >= pages - 1;
    }
    text.addEventListener("input", () => { page = 0; layItems(); });
    kind?.addEventListener("change", () => { page = 0; layItems(); });
    back.addEventListener("click", () => { page--; layItems(); });
    next.addEventListener("click", () => { page++; layItems(); });
    one("items-controls").hidden = false;
    layItems();
    addEventListener("beforeprint", () => { for (const tile of all(".tile", items)) tile.hidden = false; });
    addEventListener("afterprint", layItems);
  }

  // Text to copy.
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre");
      getSelection().selectAllChildren(text);
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        document.execCommand("copy");  // pages from a disk, in some browsers
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
})();
