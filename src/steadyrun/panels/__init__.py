"""Job: the seven panels as data, and their drawings.
May import: report and below; plotly, jinja2, tsdownsample, matplotlib when used.
Entry point: `board.board_of`.
Output: a `Board`; HTML, images, characters.
"""
