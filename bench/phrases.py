"""Sentences with gaps, and the words that fill them, in Chinese, in English and in both at once."""

# The first word of a list is drawn most often, the last most rarely (see `corpus.Words`).
WORDS = {
    "食物": (
        "火锅 拉面 咖啡 烤鱼 奶茶 沙拉 饺子 寿司 小龙虾 米粉 披萨 豆浆 酸菜鱼 烧烤 粥 汤圆 "
        "麻辣烫 生煎 肠粉 螺蛳粉 羊肉串 肉夹馍 凉皮 卤味 榴莲 芒果 杨梅 豆腐脑 春卷 锅贴"
    ),
    "口味": "不吃辣 微辣 清淡 偏甜 少盐 不要香菜 多放醋 特辣 无糖 不放葱 少油 加冰",
    "地点": (
        "上海 北京 成都 公司 机场 杭州 深圳 学校 医院 广州 西安 图书馆 健身房 南京 厦门 "
        "苏州 重庆 大理 青岛 长沙 昆明 哈尔滨 三亚 敦煌 拉萨 洛阳 泉州 景德镇"
    ),
    "人": (
        "妈妈 李明 王芳 张伟 老板 爸爸 陈静 同事 刘洋 房东 周杰 赵敏 孙磊 吴娜 医生 郑强 "
        "导师 林晓 黄蕾 徐峰 何洁 高翔 罗丹 梁宇 宋佳 唐宁 许晴 韩冰 冯凯 邓琳"
    ),
    "时候": (
        "明天 周末 昨天 下周三 今晚 上个月 月底 国庆 早上 春节 下个季度 去年夏天 周五下午 "
        "生日那天 清明 中秋 元旦 六月初 端午 半夜"
    ),
    "事情": (
        "开会 看电影 跑步 体检 搬家 出差 面试 聚餐 打羽毛球 学日语 写周报 修电脑 报税 "
        "拔牙 办签证 练吉他 养猫 考驾照 爬山 露营 钓鱼 种花 做陶艺 游泳 攀岩"
    ),
    "东西": (
        "手机 合同 钥匙 机票 电脑 发票 耳机 身份证 相机 充电器 雨伞 行李箱 眼镜 会员卡 "
        "显示器 吸尘器 空气净化器 自行车 帐篷 投影仪 护照 保温杯 键盘 台灯 药"
    ),
    "心情": "开心 有点累 很满意 焦虑 担心 期待 后悔 兴奋 无聊 放松 生气 感动 紧张",
    "project": (
        "dashboard migration checkout onboarding billing search mobile analytics payments "
        "inventory recommender gateway scheduler compliance localization archiver "
        "telemetry sandbox ledger marketplace"
    ),
    "tool": (
        "database Python Docker Redis Kubernetes Postgres Kafka Excel Figma React Terraform "
        "Grafana Airflow Rust TypeScript SQLite Nginx Spark Ansible RabbitMQ Prometheus "
        "Elasticsearch Pulumi Envoy ClickHouse"
    ),
    "problem": (
        "timeout crash bug delay leak outage deadlock regression rollback latency overflow "
        "misconfiguration backlog corruption throttling segfault drift contention"
    ),
    "food": (
        "coffee pizza hotpot noodles sushi salad tea curry dumplings tacos ramen burger oatmeal "
        "cheesecake falafel paella kimchi croissant lasagna pho gnocchi tiramisu"
    ),
    "person": (
        "Alice mom Bob boss Carol dad David Emma landlord Frank Grace Henry Irene Jack "
        "Karen Liam Mia Noah Olivia Peter Quinn Rachel Sophie Tom Uma Victor Wendy"
    ),
    "place": (
        "London office Paris home airport Tokyo Berlin Boston Seattle Lisbon Sydney "
        "Toronto Kyoto Madrid Dublin Oslo Vienna Prague Lima Cairo Reykjavik Zanzibar"
    ),
    "day": (
        "tomorrow Friday today Monday tonight yesterday Tuesday Sunday Wednesday January "
        "Christmas August October Easter midnight"
    ),
    "hobby": (
        "running yoga reading cooking cycling hiking swimming gaming painting chess gardening "
        "photography climbing pottery sailing knitting birdwatching archery fencing"
    ),
    "thing": (
        "laptop contract passport ticket phone invoice camera keyboard backpack umbrella monitor "
        "charger bicycle telescope turntable projector drone kayak"
    ),
    "mood": "happy tired worried excited bored proud anxious relieved annoyed calm",
}

CHINESE = (
    "我{时候}要和{人}一起去{地点}{事情},你记得提醒我带上{东西}。",
    "{人}说{地点}那家{食物}特别好吃,不过我{口味},下次点菜的时候要注意。",
    "{时候}我在{地点}丢了{东西},后来是{人}帮我找回来的,真的{心情}。",
    "最近一直在{事情},感觉{心情},{人}建议我{时候}去{地点}休息一下。",
    "帮我记一下:{东西}的编号是{号码},花了{价钱}元,{时候}之前要交给{人}。",
    "我对{食物}过敏,所以{时候}和{人}吃饭的时候请推荐{口味}的菜。",
    "{人}的电话改成{号码}了,{时候}去{地点}之前先联系一下。",
    "上次你推荐的{食物}我试过了,{口味}的版本更合适,{人}也觉得{心情}。",
)

ENGLISH = (
    "I need to meet {person} at {place} on {day} and bring the {thing}, please remind me.",
    "The {project} project hit another {problem} in {tool} on {day}, ticket {code} is still open.",
    "{person} told me the {food} in {place} is great, but I prefer {food} without sugar.",
    "I have been doing a lot of {hobby} lately and feel {mood}, {person} wants to join on {day}.",
    "My new {thing} cost {price} dollars, the order number is {code} and it ships to {place}.",
    "We decided with {person} to move {project} from {tool} to {tool} before {day}.",
    "I am allergic to {food}, so when we travel to {place} on {day} let us find some {food}.",
    "After the {problem} yesterday I was {mood}, but {person} fixed the {tool} setup quickly.",
)

MIXED = (
    "{时候}要把{project}项目的{tool}升级一下,{person}说上次的{problem}还没有修好,工单{code}。",
    "我在{地点}跟{person}讨论了{tool}的{problem},决定{时候}之前完成{project}的上线。",
    "今天{hobby}之后喝了一杯{food},{人}说{口味}比较好,我觉得{心情}。",
    "{person}从{place}寄来的{thing}到了,单号{code},{时候}去{地点}取。",
)

QUESTIONS = (
    "{食物}",
    "{食物} {口味}",
    "{人} {东西}",
    "{tool} {problem}",
    "{project} {tool}",
    "{地点} {事情}",
    "{thing} {place}",
    "我{时候}和{人}约了什么",
    "上次在{地点}吃的{食物}是哪家",
    "{人}说{project}的{problem}修好了吗",
    "what did {person} say about {project}",
    "when do I go {hobby} with {person}",
    "how much did the {thing} cost",
    "which {food} does {person} like in {place}",
)
