"""The figure of FedPAE: the ensembles that each peer could choose from, and the one it chose."""

from coterie.methods.figures import Front

FRONT = Front(
    name="front",
    title="Pareto fronts and chosen ensembles",
    note="front",
    chosen="place",
    other="place_alone",
    chosen_label="chosen",
    other_label="its own models alone",
    other_words="own models",
    x_label="strength: mean validation {metric} of the members",
    y_label="diversity",
    about="Strength and diversity of the ensembles",
    caption=(
        "A line is the Pareto front of one peer's last search: no ensemble on it is beaten in both strength and "
        "diversity. From these ensembles and its own models alone, a peer takes the one with the best vote on its "
        "validation data, so no peer does worse there than alone. Diversity depends on the size of an ensemble: for "
        "a peer's own models, if they are fewer or more, the scale differs slightly."
    ),
    missing="This method does not choose ensembles.",
    table="Chosen ensembles",
    table_caption="Each peer's final ensemble, and the {metric} of its vote on the peer's validation data.",
    members="members",
    merits=(("together", "vote"), ("alone", "own models alone")),
)
