"""Results as files: recorded from finished runs, scored again from outputs, and put in tables.

``results`` says what a row is and ``places`` how it names files; ``commands`` and ``machine`` say
how and on what it came about; ``record``, ``verify`` and ``board`` are ``python -m benchmarks``.
"""
