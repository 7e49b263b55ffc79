"""Imported last by the process that cells are forked from: Ctrl-C is heard again.

That of the terminal goes to it too, and must not end it while it loads; see ``worker``. Neither
must SIGTERM, which ``timeout`` and schedulers send to all processes: the grid passes it on.
"""

import signal

# What came in the meantime was meant for the grid, and is forgotten.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
signal.signal(signal.SIGINT, signal.default_int_handler)
