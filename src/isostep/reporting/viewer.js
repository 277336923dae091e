// Ball-and-stick molecules on a canvas: drag to turn, arrow keys too. Depth by painter's order, size and shade.
(() => {
  const COLOUR = { H: "#e8e8e8", C: "#5b5f66", N: "#3b62d8", O: "#d8342c", F: "#4faa4f", P: "#e08a1e", S: "#d9b92b",
    Cl: "#38a838", Br: "#93382c", I: "#7b3fa0" };
  const RADIUS = { H: 0.26, C: 0.38, N: 0.37, O: 0.36, F: 0.34 };

  function mix(hex, amount) {
    const part = (k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
    const to = amount > 0 ? 255 : 0, a = Math.abs(amount);
    return `rgb(${[0, 1, 2].map((k) => Math.round(part(k) * (1 - a) + to * a)).join(",")})`;
  }

  function show(canvas, molecule) {
    let yaw = 0.5, pitch = -0.35;
    const reach = Math.max(...molecule.xyz.map((p) => Math.hypot(...p))) + 0.6;

    function draw() {
      const size = canvas.clientWidth || 180, ratio = window.devicePixelRatio || 1;
      canvas.width = canvas.height = size * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
      const unit = size / 2 / reach;
      const at = molecule.xyz.map(([x, y, z]) => {
        const u = cy * x + sy * z, w = cy * z - sy * x;
        const v = cp * y - sp * w, depth = sp * y + cp * w;
        return { x: size / 2 + unit * u, y: size / 2 - unit * v, depth };
      });
      const parts = molecule.bonds.map(([i, j, order]) => ({ depth: (at[i].depth + at[j].depth) / 2 - 0.05, i, j, order }))
        .concat(at.map((p, k) => ({ depth: p.depth, k })));
      parts.sort((a, b) => a.depth - b.depth);
      for (const part of parts) {
        const near = Math.max(0, Math.min(1, (part.depth / reach + 1) / 2));
        if (part.k === undefined) stick(pen, at[part.i], at[part.j], part.order, unit, near);
        else ball(pen, at[part.k], molecule.atoms[part.k], unit, near);
      }
    }

    function stick(pen, a, b, order, unit, near) {
      const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
      const [nx, ny] = [-(b.y - a.y) / length, (b.x - a.x) / length];
      pen.strokeStyle = mix("#8a8f98", (near - 0.5) * 0.5);
      pen.lineWidth = unit * (order > 1 ? 0.1 : 0.16);
      for (let k = 0; k < order; k++) {
        const shift = (k - (order - 1) / 2) * unit * 0.2;
        pen.beginPath();
        pen.moveTo(a.x + nx * shift, a.y + ny * shift);
        pen.lineTo(b.x + nx * shift, b.y + ny * shift);
        pen.stroke();
      }
    }

    function ball(pen, p, element, unit, near) {
      const base = COLOUR[element] || "#b05fb0", r = unit * (RADIUS[element] || 0.42) * (0.88 + 0.24 * near);
      const light = pen.createRadialGradient(p.x - r * 0.35, p.y - r * 0.4, r * 0.1, p.x, p.y, r);
      light.addColorStop(0, mix(base, 0.65));
      light.addColorStop(1, mix(base, -0.35 * (1.2 - near)));
      pen.fillStyle = light;
      pen.beginPath();
      pen.arc(p.x, p.y, r, 0, 2 * Math.PI);
      pen.fill();
    }

    let last = null;
    canvas.addEventListener("pointerdown", (e) => { last = [e.clientX, e.clientY]; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (!last) return;
      yaw += (e.clientX - last[0]) * 0.012;
      pitch += (e.clientY - last[1]) * 0.012;
      last = [e.clientX, e.clientY];
      draw();
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { last = null; });
    canvas.addEventListener("keydown", (e) => {
      const turn = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[e.key];
      if (!turn) return;
      yaw += turn[0];
      pitch += turn[1];
      e.preventDefault();
      draw();
    });
    new ResizeObserver(draw).observe(canvas);
    draw();
  }

  const data = JSON.parse(document.getElementById("molecules-3d")?.textContent || "[]");
  document.querySelectorAll("canvas[data-molecule]").forEach((c) => show(c, data[Number(c.dataset.molecule)]));
})();
