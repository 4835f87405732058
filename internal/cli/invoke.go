package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type invokeOptions struct {
	output      format
	data        string
	contentType string
}

func newInvokeCommand(env *Env) *cobra.Command {
	var opts invokeOptions
	cmd := &cobra.Command{
		Use:   "invoke APP/FUNCTION",
		Short: "Call a function once, and print its answer",
		Long: `Call a function once, and write its answer to standard output. With -o json the cost of the
call is added. A function that takes HTTP gets a POST to / with the data as its body.`,
		Example: `  outboard invoke shop/price -d '{"item":7}'
  outboard invoke thumbnails/decode -d @photo.jpg > photo.raw
  outboard invoke shop/price -d @- -o json`,
		Args:              oneArg("name one function, as APP/FUNCTION; `outboard functions` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runInvoke(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(functionWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVarP(&opts.data, "body", "d", "", dataUsage)
	cmd.Flags().StringVar(&opts.contentType, "type", "", "content type of the data, for a function that takes HTTP")
	complete(cmd, "output", completeFormat)
	return cmd
}

// An answer is the JSON form of a call's result.
type answer struct {
	// Body is the response if it is valid UTF-8, otherwise Bytes is.
	Body  string          `json:"body,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
	Call  client.CallCost `json:"call"`
}

func runInvoke(ctx context.Context, env *Env, opts invokeOptions, name string) error {
	app, function, err := partOf(name, "FUNCTION")
	if err != nil {
		return err
	}
	data, err := readData(env, opts.data)
	if err != nil {
		return err
	}
	body, cost, err := env.client().Invoke(ctx, client.Invocation{
		App: app, Function: function, Body: readerOf(data), ContentType: opts.contentType,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(writeAnswer(env, opts.output, body, cost), body.Close()); err != nil {
		return err
	}
	if cost.Status >= 400 {
		return &statusError{status: statusOther, err: fmt.Errorf("%s answered with the HTTP status %d", name, cost.Status)}
	}
	return nil
}

func writeAnswer(env *Env, output format, body io.Reader, cost client.CallCost) error {
	if output != "json" {
		_, err := io.Copy(env.Stdout, body)
		return err
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	a := answer{Call: cost}
	if utf8.Valid(content) {
		a.Body = string(content)
	} else {
		a.Bytes = content
	}
	encoder := newJSONEncoder(env.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(a)
}

// ---- publish

type publishOptions struct{ data string }

func newPublishCommand(env *Env) *cobra.Command {
	var opts publishOptions
	cmd := &cobra.Command{
		Use:   "publish SUBJECT",
		Short: "Send a message on a subject to the functions that subscribe to it",
		Long: `Send a message on a subject, to the functions and workflows whose manifests subscribe to
it (subjects:), wherever in the pool.`,
		Example: `  outboard publish orders.new -d '{"item":7}'
  outboard publish photos.new -d @photo.jpg`,
		Args:              oneArg("name one subject, such as orders.new"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runPublish(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVarP(&opts.data, "body", "d", "", dataUsage)
	return cmd
}

func runPublish(ctx context.Context, env *Env, opts publishOptions, subject string) error {
	data, err := readData(env, opts.data)
	if err != nil {
		return err
	}
	return env.client().Publish(ctx, subject, readerOf(data))
}
