# %% [markdown]
# # Refine a segmentation network
#
# A network's scores, at a quarter of the resolution, become labels that follow the image, with a
# proven distance from the optimum. The network is loaded as if from a hub; to need no download,
# the page first trains a tiny one.

# %%
import tempfile

import numpy as np
import torch
from skimage import data, transform
from transformers import SegformerConfig, SegformerForSemanticSegmentation
from transformers.utils import logging

import densecrf

logging.disable_progress_bar()
cat = transform.resize(data.chelsea(), (192, 288), anti_aliasing=True)
image = (255 * cat).astype(np.uint8)

# %% [markdown]
# ## Train a tiny network
#
# A tiny SegFormer learns one picture for a few seconds, from a rough mask: enough for blurred
# borders and some doubt, as every network has. Skip this if you have a model.

# %%
y, x = np.mgrid[:192, :288]
rough = (((x - 130) / 125) ** 2 + ((y - 110) / 95) ** 2 < 1).astype(np.int64)

torch.manual_seed(0)
torch.set_num_threads(1)
sizes = {"hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 1, 1, 1]}
config = SegformerConfig(num_labels=2, depths=[1, 1, 1, 1], decoder_hidden_size=32, **sizes)
teacher = SegformerForSemanticSegmentation(config)
pixels = torch.tensor(cat, dtype=torch.float32).permute(2, 0, 1)[None]
optimizer = torch.optim.Adam(teacher.parameters(), 3e-3)
for _ in range(40):
    loss = teacher(pixel_values=pixels, labels=torch.tensor(rough)[None]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

folder = tempfile.mkdtemp()
teacher.save_pretrained(folder)

# %% [markdown]
# ## Load it and run it
#
# This code works for every model of the hub: replace `folder` by its name, and the division by 255
# by its image processor.

# %%
model = SegformerForSemanticSegmentation.from_pretrained(folder).eval()
with torch.inference_mode():
    logits = model(pixel_values=torch.tensor(image).permute(2, 0, 1)[None] / 255).logits[0]
logits.shape

# %% [markdown]
# torchvision's models return a dictionary: `logits = model(batch)["out"][0]`. `refine` takes the
# logits of either as they are; where their label axis is named, it resizes them to the image.

# %%
result = densecrf.refine(image, logits.numpy(), axis=0, kind="logits")
result

# %% [markdown]
# The labels over the image, and the energy and the bound by iteration:

# %%
result.plot(image=image)

# %%
changed = result.changes
print(f"{changed.changed / changed.pixels:.1%} of the pixels changed")
