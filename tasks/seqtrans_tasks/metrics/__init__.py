"""How good outputs are: lines of text, words of phones, inflected forms. No task is known here.

``scores`` gives what a task's ``score`` returns, and ``significance`` what its ``compare`` does;
both build on the rest:

- ``bleu``: BLEU, chrF and TER through sacreBLEU, and tokenised BLEU as ``multi-bleu.perl`` has it;
- ``moses`` and ``compounds``: what the Transformer paper's kind of BLEU does to text before it;
- ``edits``: Levenshtein distance, word and phone error rates, exact match;
- ``guards``: what makes a score mean nothing, refused or warned of;
- ``word_error_rate``, ``exact_match``, ``tokenised_bleu``: each a metric of the package
  ``evaluate``, which ``evaluate.load`` takes by the path of its file.
"""
