// A <picture> follows the system's theme. Let it follow the theme that the reader chose on this site.
(function () {
  "use strict";
  function follow() {
    const dark = document.documentElement.dataset.theme === "dark";
    for (const source of document.querySelectorAll("picture source")) {
      source.dataset.theme = source.dataset.theme || (/dark/.test(source.media) ? "dark" : "light");
      source.media = (source.dataset.theme === "dark") === dark ? "all" : "not all";
    }
  }
  new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  document.addEventListener("DOMContentLoaded", follow);
})();
