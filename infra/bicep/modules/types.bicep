// Types, names and role ids that several files share.

@export()
@description('Names of the queues and containers of one deployment, as internal/storage/azure/names.go makes them.')
type namesType = {
  @description('Queue of the jobs to do: the first of jobs.')
  queue: string
  @description('Queues that the jobs to do are spread over.')
  jobs: string[]
  @description('Queue of the jobs that come before the others.')
  first: string
  @description('Queue of the jobs that VMs of regular priority are to finish.')
  onDemand: string
  @description('Queue of dead-lettered jobs.')
  poison: string
  @description('Container of the job records.')
  records: string
  @description('Container of payloads too large for a message.')
  payloads: string
  @description('Container of heartbeats.')
  workers: string
  @description('Container of what operators ask of all workers.')
  control: string
  @description('Container of the files that jobs store for others.')
  outputs: string
  @description('Container of packages that the gallery reads. Not known to the workers.')
  packages: string
}

@export()
@description('A container with the data that jobs work on.')
type dataContainerType = {
  @description('Name of the container: 3 to 63 of a-z, 0-9 and single dashes.')
  @minLength(3)
  @maxLength(63)
  name: string
  @description('What jobs may do there: Read, or ReadWrite for handlers that store results.')
  access: 'Read' | 'ReadWrite'
}

@export()
@description('Days after the last write until blobs are deleted.')
type retentionType = {
  @description('Job records, with their results and logs. As long as a record is there, its job id has one outcome. A message can be hidden for 7 days, and no record may go before the messages of its job.')
  @minValue(8)
  records: int
  @description('Payloads. Longer than any job waits, since a job without its payload cannot run.')
  @minValue(1)
  payloads: int
  @description('Heartbeats of workers that ended.')
  @minValue(1)
  workers: int
  @description('Files that jobs store for others, since each was sent: longer than any job runs. 180 if it is not given.')
  @minValue(1)
  outputs: int?
}

type weekTimeType = {
  @description('Days on which it is: Monday, Tuesday and so on.')
  @minLength(1)
  @maxLength(7)
  days: ('Monday' | 'Tuesday' | 'Wednesday' | 'Thursday' | 'Friday' | 'Saturday' | 'Sunday')[]
  @description('Hour of the day.')
  @minValue(0)
  @maxValue(23)
  hour: int
}

@export()
@description('A time of the week at which there are other numbers of VMs than usual, such as nights or weekends. Two must not overlap: Azure lets the one that began last count, until any of them ends.')
type timeType = {
  @description('Name of the profile, such as weekend.')
  @minLength(1)
  name: string
  @description('Time zone by its name in Windows, such as W. Europe Standard Time, or UTC.')
  timeZone: string
  @description('When it begins.')
  begin: weekTimeType
  @description('When it ends.')
  end: weekTimeType
  @description('Fewest VMs then, at least 1 unless there are none.')
  @minValue(0)
  @maxValue(1000)
  minInstances: int
  @description('Most VMs then; 0 for none.')
  @minValue(0)
  @maxValue(1000)
  maxInstances: int
}

@export()
@description('Images of the marketplace that VMs start from. They must be of generation 2 for Trusted Launch.')
type imageType = {
  @description('Publisher, such as Canonical.')
  publisher: string
  @description('Offer, such as ubuntu-24_04-lts.')
  offer: string
  @description('SKU, such as server, or server-arm64 for sizes with an Arm processor.')
  sku: string
  @description('Version, or latest.')
  version: string
}

@export()
@description('Commands of the VM application. They run in the folder of the package: under /bin/sh as root, on Windows under cmd /C as SYSTEM.')
type packageCommandsType = {
  @description('Puts the package in place and starts the worker.')
  @maxLength(4096)
  install: string
  @description('Replaces the previous version with this one.')
  @maxLength(4096)
  update: string
  @description('Stops the worker and removes the package.')
  @maxLength(4096)
  remove: string
}

@export()
@description('What VMs run. It cannot be changed later: a scale set and a VM application are for one system.')
type operatingSystemType = 'Linux' | 'Windows'

@export()
@description('How much of a deployment is made: Foundation without the application version, Application without VMs, or Workers, which is all.')
type stageType = 'Foundation' | 'Application' | 'Workers'

@export()
@description('Where VMs get the worker\'s configuration from: a Blob beside the package, or the Package itself.')
type configurationPlaceType = 'Blob' | 'Package'

@export()
@description('How VMs reach the internet: NatGateway, or StorageOnly, which reaches the region\'s storage and nothing else, and costs nothing.')
type outboundType = 'NatGateway' | 'StorageOnly'

@export()
@description('What kind of principal an id names.')
type principalKindType = 'User' | 'Group' | 'ServicePrincipal'

// Built-in roles: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
@export()
@description('Ids of the built-in roles that are assigned.')
var roles = {
  blobDataContributor: 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  blobDataReader: '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
  // Renewing a message is Update Message, which the narrower Message Processor may not call.
  monitoringMetricsPublisher: '3913510d-42f4-4e42-8a64-420c390055eb'
  queueDataContributor: '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  queueDataMessageSender: 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'
  queueDataReader: '19e7f393-937e-4f77-808e-94535e297925'
  // These two are what the policy that associates VMs with the collection rule asks for.
  monitoringContributor: '749f88d5-cbae-40b8-bcfc-e573ddc772fa'
  logAnalyticsContributor: '92aaf0da-9dab-42b6-94a3-d43ce8d29293'
}
