"""The scribble app: a local web page on the certified solver (``densecrf app``).

`strokes` turns strokes into a label raster, `document` holds one image's strokes, labels and
settings, `store` keeps them on disk, `live` solves after every stroke, `exports` writes the files,
`server` and `security` are the page's only way in, and `static` is the page: plain ES modules.
"""
