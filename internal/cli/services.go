package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type servicesOptions struct{ output format }

func newServicesCommand(env *Env) *cobra.Command {
	var opts servicesOptions
	cmd := &cobra.Command{
		Use:     "services",
		Short:   "List the services that the pool's programs serve",
		Long:    "List the services that the pool's programs serve. The pool's own are not among them.",
		Example: "  outboard services\n  outboard services -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServices(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runServices(ctx context.Context, env *Env, opts servicesOptions) error {
	services, err := env.client().Services(ctx)
	if err != nil {
		return err
	}
	services = slices.DeleteFunc(services, func(s client.Service) bool { return isSystemService(s.Name) })
	var rows [][]string
	for _, s := range services {
		var nodes []string
		for _, n := range s.Nodes {
			nodes = append(nodes, string(n))
		}
		rows = append(rows, []string{s.Name, strconv.Itoa(s.Endpoints), strings.Join(nodes, " "), orDash(strings.Join(s.Methods, " "))})
	}
	return opts.output.print(env, services, []string{"SERVICE", "ENDPOINTS", "NODES", "METHODS"}, rows)
}

// ---- endpoints

type endpointsOptions struct {
	output  format
	service string
}

func newEndpointsCommand(env *Env) *cobra.Command {
	var opts endpointsOptions
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "List the programs that serve calls",
		Long: `List the programs that serve calls.

A program that uses the fabric's library is listed when it connects to its node. A node can be
the proxy of other gRPC servers: see ` + "`outboard endpoints add`.",
		Example: `  outboard endpoints
  outboard endpoints --service shop.Cart -o json
  outboard endpoints add 127.0.0.1:50051 shop.Cart`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEndpoints(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.service, "service", "", "only endpoints of `SERVICE`")
	complete(cmd, "output", completeFormat)
	complete(cmd, "service", env.completeService)
	cmd.AddCommand(newEndpointsAddCommand(env), newEndpointsRemoveCommand(env))
	return cmd
}

func runEndpoints(ctx context.Context, env *Env, opts endpointsOptions) error {
	endpoints, err := env.client().Endpoints(ctx, opts.service)
	if err != nil {
		return err
	}
	if opts.service == "" {
		endpoints = slices.DeleteFunc(endpoints, isSystemEndpoint)
	}
	var rows [][]string
	for _, e := range endpoints {
		rows = append(rows, []string{
			e.ID, string(e.Node), strings.Join(e.Services, " "), orDash(e.Address), orDash(programOf(e)),
			age(time.Now(), e.Started),
		})
	}
	return opts.output.print(env, endpoints, []string{"ENDPOINT", "NODE", "SERVICES", "ADDRESS", "PROGRAM", "UP"}, rows)
}

// isSystemEndpoint reports whether a process of the pool itself is listed, such as a tenant's.
func isSystemEndpoint(e client.Endpoint) bool {
	return len(e.Services) > 0 && !slices.ContainsFunc(e.Services, func(name string) bool { return !isSystemService(name) })
}

func programOf(e client.Endpoint) string {
	if e.PID == 0 {
		return e.Program
	}
	return strings.TrimSpace(e.Program + " (" + strconv.Itoa(e.PID) + ")")
}

type endpointsAddOptions struct {
	output format
	weight int
}

func newEndpointsAddCommand(env *Env) *cobra.Command {
	var opts endpointsAddOptions
	cmd := &cobra.Command{
		Use:   "add HOST:PORT SERVICE...",
		Short: "Add a gRPC server that does not use the fabric's library",
		Long: `Add a gRPC server that does not use the fabric's library.

This node forwards calls to it, without TLS, until ` + "`outboard endpoints remove`" + `, also after
a restart. The server must be reachable from this node. Adding the same address again adds
services, or changes the weight.`,
		Example:           "  outboard endpoints add 127.0.0.1:50051 shop.Cart shop.Catalogue",
		Args:              countedArgs(2, math.MaxInt, "name the server's address and its services: outboard endpoints add HOST:PORT SERVICE..."),
		RunE:              func(cmd *cobra.Command, args []string) error { return runEndpointsAdd(cmd.Context(), env, opts, args) },
		ValidArgsFunction: env.completeEndpointService,
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&opts.weight, "weight", 0, "share of the calls beside other endpoints (default 1)")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runEndpointsAdd(ctx context.Context, env *Env, opts endpointsAddOptions, args []string) error {
	e, err := env.client().Offer(ctx, client.Endpoint{Address: args[0], Services: args[1:], Weight: opts.weight})
	if err != nil {
		return err
	}
	return opts.output.print(env, e, []string{"ENDPOINT", "SERVICES"}, [][]string{{e.ID, strings.Join(e.Services, " ")}})
}

func newEndpointsRemoveCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:               "remove ENDPOINT|ADDRESS",
		Short:             "Remove a gRPC server that was added; its calls in flight go on",
		Example:           "  outboard endpoints remove 127.0.0.1:50051",
		Args:              oneArg("name one endpoint or its address; `outboard endpoints` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runEndpointsRemove(cmd.Context(), env, args[0]) },
		ValidArgsFunction: env.firstArg(addedEndpointWords),
	}
}

func runEndpointsRemove(ctx context.Context, env *Env, id string) error {
	if err := env.client().Withdraw(ctx, id); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "endpoint %s was removed\n", id)
	return nil
}

// addedEndpointWords returns the endpoints that `outboard endpoints add` has added.
func addedEndpointWords(ctx context.Context, c *client.Client) ([]string, error) {
	endpoints, err := c.Endpoints(ctx, "")
	var words []string
	for _, e := range endpoints {
		if e.Address != "" {
			words = append(words, e.ID+"\t"+strings.Join(e.Services, " "))
		}
	}
	return words, err
}

// completeEndpointService completes the services of a server after its address.
func (env *Env) completeEndpointService(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return env.completeService(cmd, args, typed)
}
