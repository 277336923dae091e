// Graphs forming: one slider over all arms. A film has a level (0 .. 63, one character) per pair and frame.
(() => {
  const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";
  const LEVEL = Object.fromEntries([...DIGITS].map((digit, k) => [digit, k / 63]));
  const SPACE = "http://www.w3.org/2000/svg", SIZE = 240, MARGIN = 16;
  const KNOWN = ["N", "O", "F", "Cl", "S"], SHIFTS = { 1: [0], 2: [-2.6, 2.6], 3: [-4.4, 0, 4.4] };
  const reels = JSON.parse(document.getElementById("films").textContent);
  const one = (key) => document.getElementById(key);
  const [time, said, pick, play, tip] = ["film-time", "film-said", "film-graph", "film-play", "tip"].map(one);
  const make = (name, set, where) => {
    const part = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(set)) part.setAttribute(key, value);
    where?.append(part);
    return part;
  };
  const order = (film, value) => (film.most === 3 ? [0.5, 1.5, 2.5] : [0.5]).filter((cut) => value >= cut).length;
  const weight = (film, frame, pair) => film.most * LEVEL[film.edges[frame][pair]];
  const atom = (film, frame, node) => {
    const row = film.nodes[frame];
    return [film.elements[DIGITS.indexOf(row[2 * node])], LEVEL[row[2 * node + 1]]];
  };

  // How many edges and elements are other than in the frame before.
  const changes = (film) => film.edges.map((_, frame) => {
    if (!frame) return 0;
    let count = 0;
    film.pairs.forEach((_, pair) => {
      count += order(film, weight(film, frame, pair)) !== order(film, weight(film, frame - 1, pair));
    });
    for (let node = 0; film.nodes && node < film.n; node++) {
      const kind = (f) => { const [symbol, chance] = atom(film, f, node); return chance > 0.5 ? symbol : ""; };
      count += kind(frame) !== kind(frame - 1);
    }
    return count;
  });

  function stage(box, reel) {
    const stills = box.querySelector(".strip");
    const svg = make("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "graph stage", role: "img", fill: "none" });
    const note = Object.assign(document.createElement("p"), { className: "soft film-note" });
    const strip = make("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", class: "steps", role: "img" });
    stills.replaceWith(svg, strip, note);
    let film, edges, nodes, head, flips;

    function load(k) {
      film = reel.graphs[Math.min(k, reel.graphs.length - 1)];
      const spot = film.spots.map((p) => p.map((v) => MARGIN + (v / 1000) * (SIZE - 2 * MARGIN)));
      svg.replaceChildren();
      edges = film.pairs.map(([i, j]) => ({ path: make("path", { "data-pair": `${i}–${j}` }, svg), a: spot[i], b: spot[j] }));
      nodes = spot.map(([x, y], k) => {
        const r = film.nodes ? 11 : film.n <= 24 ? 6 : film.n <= 70 ? 4.2 : 2.8;
        const ball = make("circle", { cx: x, cy: y, r, class: film.nodes ? "atom" : `s${film.colour[k]}` }, svg);
        const text = film.nodes ? make("text", { x, y: y + 5 }, svg) : null;
        return { ball, text };
      });
      flips = changes(film);
      strip.replaceChildren();
      const longest = Math.max(...reels.flatMap((other) => other.steps.map((step) => step[1])));
      const most = Math.max(1, ...flips), frames = film.edges.length - 1;
      for (const [t, dt] of reel.steps) {
        const high = Math.max(2, 52 * (dt / longest));
        make("rect", { x: 1000 * t, width: Math.max(1.5, 1000 * dt - 1.5), y: 56 - high, height: high, class: "dt" }, strip);
      }
      flips.forEach((count, k) => {
        const high = (38 * count) / most;
        make("rect", { x: (1000 * (k - 1)) / frames, width: 1000 / frames - 3, y: 100 - high, height: high, class: "flips" }, strip);
      });
      head = make("line", { y1: 0, y2: 100, class: "hair" }, strip);
      strip.setAttribute("aria-label", `${reel.name}: ${reel.steps.length} steps; most decisions (${most}) change at t = ${
        (flips.indexOf(Math.max(...flips)) / frames).toFixed(2)}`);
    }

    function draw(frame) {
      let decided = 0, sure = 0;
      edges.forEach(({ path, a, b }, pair) => {
        const value = weight(film, frame, pair), bonds = order(film, value);
        decided += bonds > 0;
        const [dx, dy] = [b[0] - a[0], b[1] - a[1]], length = Math.hypot(dx, dy) || 1;
        const lines = SHIFTS[Math.max(bonds, 1)].map((s) => {
          const [sx, sy] = film.most === 3 ? [(-dy / length) * s, (dx / length) * s] : [0, 0];
          return `M${a[0] + sx} ${a[1] + sy}L${b[0] + sx} ${b[1] + sy}`;
        });
        path.setAttribute("d", lines.join(""));
        path.setAttribute("class", bonds ? "edge" : "maybe");
        path.setAttribute("opacity", bonds ? (0.45 + 0.55 * Math.min(1, value / bonds)).toFixed(2) : Math.min(1, 1.6 * value).toFixed(2));
        path.dataset.value = value.toFixed(2);
      });
      nodes.forEach(({ ball, text }, k) => {
        if (!text) return;
        const [symbol, chance] = atom(film, frame, k);
        sure += chance > 0.5;
        ball.setAttribute("class", KNOWN.includes(symbol) ? `atom ${symbol}` : "atom");
        ball.setAttribute("opacity", (0.15 + 0.85 * chance).toFixed(2));
        text.setAttribute("opacity", (0.3 + 0.7 * chance).toFixed(2));
        text.textContent = symbol;
        ball.dataset.pair = text.dataset.pair = symbol || "no atom";
        ball.dataset.value = text.dataset.value = chance.toFixed(2);
      });
      const t = frame / (film.edges.length - 1);
      for (const end of ["x1", "x2"]) head.setAttribute(end, 1000 * t);
      const known = film.nodes ? `${sure} atoms, ${decided} bonds` : `${decided} edges`;
      const step = reel.steps.filter(([at]) => at <= t + 1e-9).at(-1);
      note.textContent = `${known}; dt ${step ? Number(step[1].toPrecision(2)) : ""}`;
      svg.setAttribute("aria-label", `${reel.name} at t = ${t.toFixed(2)}: ${known}`);
      return `${reel.name}: ${known}`;
    }

    svg.addEventListener("pointermove", (e) => {
      const { pair, value } = e.target.dataset ?? {};
      tip.hidden = !pair;
      if (!pair) return;
      tip.textContent = `${pair}: ${value}`;
      tip.style.left = `${Math.min(e.clientX + 12, innerWidth - tip.offsetWidth - 4)}px`;
      tip.style.top = `${e.clientY + 12}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    return { load, draw };
  }

  const stages = [...document.querySelectorAll("[data-film]")].map((box) => stage(box, reels[Number(box.dataset.film)]));
  const frames = Number(time.max);
  function show() {
    const frame = Number(time.value), t = frame / frames;
    said.textContent = ` t = ${t.toFixed(2)}${frame ? "" : ", noise"}`;
    const words = stages.map((each) => each.draw(frame));
    time.setAttribute("aria-valuetext", `t = ${t.toFixed(2)}; ${words.join("; ")}`);
  }
  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  play.addEventListener("click", () => {
    if (timer) return stop();
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;  // then few pictures, one after the other
    if (Number(time.value) >= frames) time.value = 0;
    play.textContent = "Pause";
    show();
    timer = setInterval(() => {
      time.value = Number(time.value) + (calm ? Math.ceil(frames / 8) : 1);
      show();
      if (Number(time.value) >= frames) stop();
    }, calm ? 900 : 110);
  });
  time.addEventListener("input", () => { stop(); show(); });
  pick.addEventListener("change", () => { for (const each of stages) each.load(Number(pick.value)); show(); });
  time.value = Math.round(0.7 * frames);
  for (const each of stages) each.load(Number(pick.value));
  one("film-controls").hidden = false;
  show();
})();
