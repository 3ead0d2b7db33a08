"""The video tools over the Model Context Protocol (https://modelcontextprotocol.io): `vvt mcp`.

folder.py   the videos that a server shows, and no other file
limits.py   what one call may cost
server.py   the tools
command.py  `vvt mcp`

Only `server.py` needs the extra `mcp`.
"""
