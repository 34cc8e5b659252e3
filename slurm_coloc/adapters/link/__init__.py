# SPDX-License-Identifier: Apache-2.0
"""Nodes and login nodes to colocd over TCP: ``coloc/1``, authenticated once per connection.

    server  coloc/1 NONCE active|standby        on accept; the last word is only a hint
    client  auth CREDENTIAL                     a MUNGE credential that only SlurmUser can open:
                                                {"v", "nonce", "key", "cluster", "node"}
    both    MAC JSON                            requests and answers, as on the Unix socket
    server  refused CODE TEXT                   instead of an answer; then it closes

The credential tells the server who the client is, and carries a fresh session key that nobody but
SlurmUser's processes can read: an answer with a right MAC proves the server in turn. The server's
nonce in it makes a replayed credential worthless on every host, not only where munged saw it. MAC
is HMAC-SHA256 over the line's number and its text, under one key per direction: a line that is
changed, repeated, left out or reordered ends the connection. Texts are not encrypted, as in Slurm.

See docs/adr/0004 for what was weighed.

- munge.py    credentials
- frames.py   lines, session keys, the hello: no I/O
- client.py   blocking clients of the hooks and the command line, TCP and Unix
- source_port.py   root's connections come from a port of root's
- stream.py   the agent's client on asyncio
- agent_socket.py   how the node's hooks reach the agent
- links.py    the agent's links for what hooks want
- server.py   colocd's side
- admission.py   its rates and places: no I/O
- flood.py    what the kernel drops for it
- turns.py    its threads that ask munged
"""
