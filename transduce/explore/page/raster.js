/* Draws tables of numbers as pictures with one pixel per cell, which canvases enlarge without smoothing. */

/** A canvas with one pixel for each cell; `shade` turns a value into an index of `ramp`. */
export function raster(rows, ramp, shade) {
  const height = rows.length;
  const width = height ? rows[0].length : 0;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  if (!width) return canvas;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  let at = 0;
  for (const row of rows) {
    for (const value of row) {
      const colour = ramp[shade(value)];
      image.data[at++] = colour[0];
      image.data[at++] = colour[1];
      image.data[at++] = colour[2];
      image.data[at++] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A drawing context in CSS pixels for a canvas of this size, sharp at any pixel density. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
