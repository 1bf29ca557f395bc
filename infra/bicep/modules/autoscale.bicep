// The number of VMs follows the depth of queues. The depth counts messages in
// work too, so busy VMs do not count as idle.
//
// Autoscale has no identity, and an account with a firewall and without keys gives it
// no metrics. So workers publish the depths as custom metrics of the scale set of
// Spot VMs, unless they reach nothing but storage.
//
// Only a subscription can show how late autoscale learns that an evicted VM is gone,
// see docs/deploy.md.

import { roles, timeType } from 'types.bicep'

@description('Region.')
param location string

@description('Tags of every resource.')
param tags { *: string }

@description('Name of the scale set.')
param scaleSetName string

@description('Name of the storage account.')
param accountName string

@description('Resource group of the storage account.')
param accountGroup string

@description('Queues whose depth sets the number of VMs: the average of all, which workers publish with the messages of -first in the first one. Of the metrics of the account the first queue counts alone, without -first.')
param queueNames string[]

@description('Resource id of the scale set that has the depths as custom metrics; empty where workers publish none.')
param depthsOf string

@description('Object ids of the identities that may publish metrics of this scale set.')
param publisherIds string[]

@description('Fewest VMs.')
@minValue(0)
param minInstances int

@description('Most VMs.')
@minValue(1)
@maxValue(1000)
param maxInstances int

@description('Messages for each VM above which there are more VMs, a tenth of the most at a time. With none as the fewest, VMs are added one by one as long as there is a message.')
@minValue(2)
param jobsPerInstance int

@description('Times of the week at which there are other numbers of VMs.')
@maxLength(9)
param times timeType[]

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2025-04-01' existing = { name: scaleSetName }

resource account 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  scope: resourceGroup(accountGroup)
  name: accountName
}

// From none to the first VM the depth for each VM means nothing.
var fromNone = minInstances == 0

// As internal/telemetry/metrics/push names them.
var published = {
  metricNamespace: 'spotworker'
  metricName: 'QueueMessages'
  metricResourceUri: depthsOf
  metricResourceLocation: location
  dimensions: [
    { DimensionName: 'Queue', Operator: 'Equals', Values: queueNames }
  ]
  timeGrain: 'PT1M'
  statistic: 'Average'
  timeAggregation: 'Average'
  dividePerInstance: !fromNone
}

var measured = {
  metricName: 'ApproximateMessageCount'
  metricResourceUri: '${account.id}/services/queue/queues/${queueNames[0]}'
  timeGrain: 'PT1M'
  statistic: 'Average'
  timeAggregation: 'Average'
  // A queue's depth is documented as a metric that Azure divides by the number
  // of VMs without being asked. Dividing here might do it twice, and by zero with
  // no VMs. If Azure did not divide, a threshold would be for all VMs together:
  // the set would grow to its maximum early, and shrink late. Jobs are done then
  // too.
  // https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-common-metrics#commonly-used-storage-metrics
  dividePerInstance: false
}

var metric = empty(depthsOf) ? measured : published

var rules = [
  {
    metricTrigger: {
      ...metric
      timeWindow: 'PT5M'
      operator: 'GreaterThan'
      threshold: fromNone ? 0 : jobsPerInstance
    }
    scaleAction: {
      direction: 'Increase'
      type: 'ChangeCount'
      value: fromNone ? '1' : string(max(1, maxInstances / 10))
      // The first VM takes some minutes until it takes the message away.
      cooldown: fromNone ? 'PT15M' : 'PT5M'
    }
  }
  {
    metricTrigger: {
      ...metric
      timeWindow: 'PT15M'
      operator: fromNone ? 'LessThanOrEqual' : 'LessThan'
      // Half of it, since VMs that left share their messages among the rest.
      threshold: fromNone ? 0 : jobsPerInstance / 2
    }
    scaleAction: {
      direction: 'Decrease'
      type: 'ChangeCount'
      value: '1'
      cooldown: 'PT10M'
    }
  }
]

var usual = {
  minimum: string(minInstances)
  maximum: string(maxInstances)
  default: string(minInstances)
}

// A recurring profile lasts until the next one begins. So each time makes two:
// its own, and at its end the usual one under a name that says for which.
// https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-multiprofile
var profilesOfTimes = flatten(map(times, time => [
  {
    name: time.name
    capacity: {
      minimum: string(time.maxInstances == 0 ? 0 : max(1, min(time.minInstances, time.maxInstances)))
      maximum: string(time.maxInstances)
      default: string(time.maxInstances == 0 ? 0 : max(1, min(time.minInstances, time.maxInstances)))
    }
    // Without a VM the depth for each means nothing.
    rules: time.maxInstances == 0 ? [] : rules
    recurrence: {
      frequency: 'Week'
      schedule: {
        timeZone: time.timeZone
        days: time.begin.days
        hours: [time.begin.hour]
        minutes: [0]
      }
    }
  }
  {
    name: string({ name: 'queue depth', for: time.name })
    capacity: usual
    rules: rules
    recurrence: {
      frequency: 'Week'
      schedule: {
        timeZone: time.timeZone
        days: time.end.days
        hours: [time.end.hour]
        minutes: [0]
      }
    }
  }
]))

resource publishes 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principalId in publisherIds: {
    scope: scaleSet
    name: guid(scaleSet.id, principalId, roles.monitoringMetricsPublisher)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.monitoringMetricsPublisher)
    }
  }
]

resource autoscale 'Microsoft.Insights/autoscalesettings@2022-10-01' = {
  name: scaleSetName
  location: location
  tags: tags
  properties: {
    name: scaleSetName
    enabled: true
    targetResourceUri: scaleSet.id
    profiles: concat([{ name: 'queue depth', capacity: usual, rules: rules }], profilesOfTimes)
  }
}
