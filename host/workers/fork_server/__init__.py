"""The fork server starts worker processes as forks, so that a worker starts in milliseconds and imports nothing anew.

The server imports torch and the executors once, then waits. It has one thread and never touches CUDA, so that a fork is
safe and each worker chooses its device itself. Linux only.

    parent                           server                         worker
      | -- request (file descriptors) -> |                              |
      |                                  | -- fork -------------------> |
      | <- number and pidfd (`life`) --- |                              |
      | <------------ messages (the channel of the worker) -----------> |
      | <- exit status (`life`) -------- | <- end --------------------- |

The server ends when its parent's end of the control socket closes, and kills its workers then. The kernel kills them if
the server itself is killed, so that nothing is left of either. The next request starts another server.
"""
