// What is hard to read or to touch on the page: each function returns a list of such elements.
({
  // Text whose contrast with what is behind it is below 4.5.
  pale: () => {
  const channels = (text) => {
    const numbers = text.match(/[\d.]+(e-?\d+)?/g).map(Number);
    const unit = text.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((n) => n * unit), numbers[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((n, i) => n * top[3] + below[i] * (1 - top[3]));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const color = channels(getComputedStyle(element).backgroundColor);
    return color[3] === 1 ? color : over(color, ground(element.parentElement));
  };
  const light = (color) => {
    const [r, g, b] = color.map((n) => (n / 255 <= 0.04045 ? n / 255 / 12.92 : ((n / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !element.checkVisibility() || element.closest("[disabled], [inert], .unseen, svg")) continue;
    const back = ground(element);
    const levels = [light(over(channels(getComputedStyle(element).color), back)), light(back)];
    const ratio = Math.max(...levels) / Math.min(...levels);
    if (ratio < 4.5) found.push(`${element.tagName} ${element.id || element.className}: ${ratio.toFixed(2)}`);
  }
  return found;
},
  // Targets smaller than 44 pixels.
  small: () => [...document.querySelectorAll("button, select, summary, input, label.check")]
  .filter((x) => x.checkVisibility() && !x.closest("label.check input, label.slider input") && x.type !== "checkbox")
  .map((x) => [x.id || x.className || x.tagName, x.getBoundingClientRect()])
  .filter(([, box]) => box.width < 44 || box.height < 44)
  .map(([name, box]) => `${name} ${box.width} x ${box.height}`),
})
