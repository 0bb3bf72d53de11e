// Typeset the formulas that pymdownx.arithmatex marks, also after Material's instant loading.
window.MathJax = {
  tex: {
    inlineMath: [["\\(", "\\)"]],
    displayMath: [["\\[", "\\]"]],
  },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
};
