package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/outboard-run/outboard"
)

// A ChatMessage is a message of a conversation. Role is "system", "user" or "assistant".
type ChatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A ChatRequest requests the next message of a conversation from a model.
type ChatRequest struct {
	Model    string        `json:"model"`
	Messages []ChatMessage `json:"messages"`
	Options  ChatOptions   `json:"options"`
}

// ChatOptions control the choice of tokens; nil means the default.
type ChatOptions struct {
	Temperature *float64 `json:"temperature,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
	// MaxTokens bounds the tokens of the answer.
	MaxTokens *int `json:"num_predict,omitempty"`
}

// ChatUsage has the token counts and durations of an answer.
type ChatUsage struct {
	PromptTokens    int      `json:"prompt_eval_count"`
	GeneratedTokens int      `json:"eval_count"`
	Prefill         Duration `json:"-"`
	Decode          Duration `json:"-"`
}

// Chat requests the next message of a conversation and calls emit with its text as it is generated.
// An error of emit ends the generation and is returned.
func (c *Client) Chat(ctx context.Context, r ChatRequest, emit func(text string) error) (ChatUsage, error) {
	var u ChatUsage
	response, err := c.open(ctx, http.MethodPost, "/api/chat", r)
	if err != nil {
		return u, err
	}
	defer response.Body.Close()
	for in := json.NewDecoder(response.Body); ; {
		var line struct {
			ChatUsage
			Message ChatMessage `json:"message"`
			Done    bool        `json:"done"`
			Error   string      `json:"error"`
			Prefill int64       `json:"prompt_eval_duration"`
			Decode  int64       `json:"eval_duration"`
		}
		err := in.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return u, outboard.Errorf(outboard.Protocol, "chat", "the answer ended in the middle")
		case err != nil:
			return u, outboard.Errorf(outboard.Protocol, "chat", "%w", err)
		case line.Error != "":
			return u, outboard.Errorf(outboard.Other, "", "%s", line.Error)
		}
		if err := emit(line.Message.Content); err != nil {
			return u, err
		}
		if line.Done {
			u = line.ChatUsage
			u.Prefill, u.Decode = Duration(line.Prefill), Duration(line.Decode)
			return u, nil
		}
	}
}
