"""A quantity over time, in bounded memory."""

MOST = 2048  # points; an even number


class Timeline:
    """The course of a quantity, as points of time and value.

    Beyond MOST points neighbours are merged into the larger of the two, so that peaks stay.
    """

    def __init__(self):
        self.points, self._added, self._each = [], 0, 1

    def add(self, at, value):
        """Adds a value at a time that is not before that of the previous call."""
        if self._added % self._each == 0:
            self.points.append((at, value))
        elif value > self.points[-1][1]:
            self.points[-1] = (at, value)
        self._added += 1
        if len(self.points) == MOST:
            pairs = zip(self.points[::2], self.points[1::2])
            self.points = [max(pair, key=lambda point: point[1]) for pair in pairs]
            self._each *= 2
