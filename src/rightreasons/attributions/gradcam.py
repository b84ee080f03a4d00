"""Grad-CAM: the channels of one layer, weighted by how the explained score changes with them (Selvaraju et al. 2017, eq. 1, 2).

The default attribution of OSCAR (sec. IV-D, appendix I). Our own: captum's on a block of a ViT gives a map over channels
without an error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rightreasons.attributions import _map_layer as map_layer
from rightreasons.attributions._explained_score import checked, explaining, score
from rightreasons.models.classifier import Classifier


def maps(classifier: Classifier, x: Tensor, *, target: Tensor, layer: str = "", channels: str = "auto") -> Tensor:
    """(b, *space) at the layer's own resolution, signed: Grad-CAM's last step, taking the positive part, is left to the viewer.

    Parameters
    ----------
    x : (b, c, *size) normalised images, of any number of spatial dimensions
    target : (b,) which output to explain
    layer : whose output is the map, such as `layer4` (or `norm:input`); found by default (`_map_layer.find`)
    channels : where a named layer has them; "last" for (b, *space, c). By default the way that has the input's proportions
    """
    with explaining(classifier, x, target) as (x, target):
        where = map_layer.find(classifier, x, str(layer), channels)
        with map_layer.leaf_at(classifier.module, where.point) as seen:
            explained = score(classifier, x.detach(), target)
        if not seen:
            map_layer.refuse_unused(classifier, where)
        (raw,) = torch.autograd.grad(explained.sum(), seen, allow_unused=True)
        if raw is None:
            map_layer.refuse_unused(classifier, where)
        activation = map_layer.as_map(seen[0].detach(), classifier, where, x.shape[2:])
        gradient = map_layer.as_map(raw, classifier, where, x.shape[2:])
        over_space = tuple(range(2, activation.ndim))
        if where.is_rectified:
            # The score depends on the mean of relu(A), so its gradient is one number where A is positive and 0 elsewhere.
            active = (activation > 0).sum(over_space, keepdim=True).clamp(min=1)
            weight, activation = gradient.sum(over_space, keepdim=True) / active, activation.clamp(min=0)
        else:
            weight = gradient.mean(over_space, keepdim=True)
        return checked((weight * activation).sum(1), "gradcam", classifier)
