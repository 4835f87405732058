package outgoing

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// authenticate adds the credentials of the arguments, or of a secret of the app, to a request.
func (c *Caller) authenticate(m *message, v any) error {
	policy, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	scheme, _ := policy["scheme"].(string)
	if name, ok := policy["secret"].(string); ok {
		secret, err := c.secret(name)
		if err != nil {
			return err
		}
		if policy, err = parseSecret(scheme, name, secret); err != nil {
			return err
		}
	}
	text := func(key string) string { s, _ := policy[key].(string); return s }
	if scheme == "basic" {
		pair := text("username") + ":" + text("password")
		m.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
		return nil
	}
	if strings.ContainsAny(text("token"), "\r\n") {
		return invalid("the token has a line break")
	}
	m.header.Set("Authorization", "Bearer "+text("token"))
	return nil
}

// parseSecret parses the credentials in a secret: a JSON object with the DSL's names, or else
// "USERNAME:PASSWORD", or a token.
func parseSecret(scheme, name string, secret []byte) (map[string]any, error) {
	var policy map[string]any
	if json.Unmarshal(secret, &policy) == nil && policy != nil {
		return policy, nil
	}
	text := strings.TrimSpace(string(secret))
	if scheme != "basic" {
		return map[string]any{"token": text}, nil
	}
	username, password, ok := strings.Cut(text, ":")
	if !ok {
		return nil, invalid("the secret %s is no USERNAME:PASSWORD", name)
	}
	return map[string]any{"username": username, "password": password}, nil
}
