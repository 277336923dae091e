// What scrolls can be reached with the keyboard: code and tables that are wider than the page.
addEventListener("load", () => {
  function mark() {
    for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
      if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  }
  mark();
  addEventListener("resize", mark);
});
