"""Job: the seven panels as data, and the ways they are drawn.
May import: report and below; plotly, jinja2, tsdownsample, matplotlib when used.
Entry point: `board.board_of`.
Output: a `Board`; HTML, images, characters.
"""
