// SPDX-License-Identifier: BSD-3-Clause
// Search: pages with the words in a title, then classes and functions of this name, then other pages, attributes last.
var SOUGHT = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().split(/\W+/).filter((word) => word);
var Scorer = {
  objNameMatch: 12,
  objPartialMatch: 3,
  objPrio: {},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, , about, score, , kind]) => {
    if (kind === "object") {
      const first = /class|function/.test(about.split(",")[0]) ? score : score / 12;
      return first - title.split(".").length / 100; // names of the package before those of its parts
    }
    const titled = SOUGHT.every((word) => title.toLowerCase().includes(word)) ? 2 : 0;
    if (/^(start|guide|tutorials)/.test(page)) return score + titled + 3;
    if (/^(howto|concepts|gallery|troubleshooting)/.test(page)) return score + titled + 2;
    return score + titled + (/^(reference|changelog)/.test(page) ? 0 : 1);
  },
};
