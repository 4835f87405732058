package cli

import "github.com/spf13/cobra"

// commandGroup is a heading of `outboard --help` with its commands.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// commandGroups returns every command that users see. The names follow the scheme of
// docs/design/0009-commands.md, which TestCommandScheme checks.
func commandGroups(env *Env) []commandGroup {
	return []commandGroup{
		{id: "pool", title: "The pool:", commands: []*cobra.Command{
			newStatusCommand(env), newNodesCommand(env), newNetworkCommand(env), newTokenCommand(env),
		}},
		{id: "programs", title: "Programs that use devices of the pool:", commands: []*cobra.Command{
			newRunCommand(env), newPlanCommand(env), newCalibrateCommand(env), newDevicesCommand(env), newLeasesCommand(env), newSessionsCommand(env), newTraceCommand(env),
		}},
		{id: "training", title: "Training:", commands: []*cobra.Command{newTrainCommand(env), newJobsCommand(env), newDataCommand(env)}},
		{id: "apps", title: "Apps of functions and workflows:", commands: []*cobra.Command{
			newNewCommand(env), newDeployCommand(env), newAppsCommand(env), newFunctionsCommand(env), newInvokeCommand(env),
			newWorkflowsCommand(env), newExecutionsCommand(env), newLogsCommand(env), newPublishCommand(env), newModulesCommand(env),
		}},
		{id: "models", title: "Models:", commands: []*cobra.Command{
			newModelsCommand(env), newInferCommand(env), newChatCommand(env), newKeysCommand(env),
		}},
		{id: "calls", title: "Calls between programs:", commands: []*cobra.Command{
			newCallsCommand(env), newServicesCommand(env), newEndpointsCommand(env), newPoliciesCommand(env),
		}},
		{id: "node", title: "This node:", commands: []*cobra.Command{
			newUpCommand(env), newDownCommand(env), newUpgradeCommand(env), newConfigCommand(env), newVersionCommand(env),
		}},
	}
}

// addCommands adds all commands to the root, each in its group.
func addCommands(root *cobra.Command, env *Env) {
	for _, g := range commandGroups(env) {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.id
		}
		acceptHabits(g.commands...)
		root.AddCommand(g.commands...)
	}
	root.SetHelpCommand(newHelpCommand())
	root.SetHelpCommandGroupID("node")
	root.SetCompletionCommandGroupID("node")
	root.AddCommand(newInternalCommand(env), newExitStatusTopic())
	root.AddCommand(newJobVerbs(env)...)
}
