package state

import "encoding/json"

// DecodeJSON decodes a value of the table that another node may have written. A value that can't be
// encoded again is refused: a time with an offset of 24 hours can be read from JSON and not be
// written to it, and the lists of this node would end there.
func DecodeJSON(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return err
	}
	_, err := json.Marshal(v)
	return err
}
